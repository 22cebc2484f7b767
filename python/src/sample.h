// Sample: bytes of one item, handed to Python without a copy.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "base/hash.h"

namespace quiver::py {

// A Python object that keeps a block of memory alive; made once per batch.
nanobind::object keep_alive(std::shared_ptr<const void> block);

// A new reference to a Sample over `data`, which `owner` keeps alive. A plain CPython type: making
// one is an allocation and two reference counts, since a batch may have thousands of small ones.
// `row`: its place in the batch, where `owner` is one.
PyObject* new_sample(ByteSpan data, std::uint32_t id, PyObject* owner, std::uint32_t row = 0);
// One whose bytes did not arrive: whoever reads them gets CancelledError.
PyObject* lost_sample(PyObject* owner);

// Of a Batch, for pickling. Whether the owner is the batch whose samples this thread passes by
// reference now; and the sample again on the other side, or null with a Python error.
bool goes_by_reference(PyObject* owner);
PyObject* sample_of(PyObject* batch, std::uint32_t row);

}  // namespace quiver::py
