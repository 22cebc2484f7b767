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
PyObject* new_sample(ByteSpan data, std::uint32_t id, PyObject* owner);

}  // namespace quiver::py
