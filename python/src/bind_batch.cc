// Batches in this process, and how their samples travel from a worker to the loop: by reference.
// The ticket's slot in the shared memory keeps the batch's block until the loop has got the batch,
// so a pickled sample says only where it lies, and a message that is lost loses no memory.
#include <fcntl.h>

#include <map>

#include "batch.h"
#include "sample.h"

namespace quiver::py {
namespace {

using cache::BatchView;
using cache::FedItem;
using cache::FeedReader;

// Which batch's samples this thread pickles by reference, if any.
struct Passing {
  std::uint64_t feed = 0, ticket = 0;
  bool operator==(const Passing&) const = default;
};
thread_local std::optional<Passing> passing;

// Begins with its making and ends with its pickling, or with its end where pickling failed.
struct ByReference {
  Passing mine;

  explicit ByReference(const PyBatch& batch) : mine{batch.reader->identity(), batch.view.ticket} {
    passing = mine;
  }
  ByReference(const ByReference&) = delete;
  ByReference& operator=(const ByReference&) = delete;
  ~ByReference() { end(); }
  void end() const {
    if (passing == mine) passing.reset();
  }
};

// The readers of this process's own feeds. Under the GIL.
std::map<std::uint64_t, std::weak_ptr<FeedReader>>& own_feeds() {
  static std::map<std::uint64_t, std::weak_ptr<FeedReader>> feeds;
  return feeds;
}

// A batch that a worker passed to this process. Never an error, for torch unpickles batches of
// epochs that were given up too, and throws them away: then there is nothing in it.
PyBatch received(std::uint64_t feed, std::uint64_t ticket) {
  const auto found = own_feeds().find(feed);
  auto reader = found == own_feeds().end() ? nullptr : found->second.lock();
  if (reader) {
    if (auto view = reader->receive(ticket)) return {*std::move(view), std::move(reader)};
  }
  BatchView nothing;
  nothing.ticket = ticket;
  nothing.abandoned = true;
  return {std::move(nothing), nullptr};
}

// One Sample per item, in order; where reading failed, the exception object instead.
nb::list contents(nb::handle_t<PyBatch> self) {
  const BatchView& batch = nb::cast<const PyBatch&>(self).view;
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(batch.items.size()));
  if (list == nullptr) nb::raise_python_error();
  nb::list result = nb::steal<nb::list>(list);
  for (std::uint32_t i = 0; i < batch.items.size(); ++i) {
    const FedItem& item = batch.items[i];
    PyObject* object = item.failed ? exception_class(item.code)(item.error.c_str()).release().ptr()
                                   : new_sample(item.data, item.id.value, self.ptr(), i);
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), object);
  }
  return result;
}

std::vector<std::uint32_t> ids_of(const PyBatch& batch) {
  std::vector<std::uint32_t> ids;
  ids.reserve(batch.view.items.size());
  for (const FedItem& item : batch.view.items) ids.push_back(item.id.value);
  return ids;
}

struct PyReader {
  OwnedHere<std::shared_ptr<FeedReader>> reader;
};

PyReader attach(int fd) {
  return {OwnedHere(blocking([&]() -> Result<std::shared_ptr<FeedReader>> {
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0) return os_error(errno, "duplicating the feed's descriptor");
    return FeedReader::attach(io::Fd(own));
  }))};
}

// None when the time is over.
std::optional<PyBatch> wait(const PyReader& self, std::uint64_t ticket, double timeout) {
  auto result = [&] {
    nb::gil_scoped_release release;
    return (*self.reader)->wait(ticket, Duration(static_cast<std::int64_t>(timeout * 1e9)));
  }();
  if (!result && result.error().code == Code::kTimeout) return std::nullopt;
  return PyBatch{unwrap(std::move(result)), *self.reader};
}

}  // namespace

bool goes_by_reference(PyObject* owner) {
  if (!passing || !nb::isinstance<PyBatch>(nb::handle(owner))) return false;
  const auto& batch = nb::cast<const PyBatch&>(nb::handle(owner));
  return batch.reader && *passing == Passing{batch.reader->identity(), batch.view.ticket} &&
         batch.reader->send(batch.view.ticket);
}

PyObject* sample_of(PyObject* batch, std::uint32_t row) {
  if (!nb::isinstance<PyBatch>(nb::handle(batch))) {
    PyErr_SetString(PyExc_TypeError, "a Sample is of a Batch");
    return nullptr;
  }
  const BatchView& view = nb::cast<const PyBatch&>(nb::handle(batch)).view;
  if (view.abandoned) return lost_sample(batch);
  if (row >= view.items.size()) {
    PyErr_SetString(PyExc_IndexError, "the batch has no such item");
    return nullptr;
  }
  return new_sample(view.items[row].data, view.items[row].id.value, batch, row);
}

nb::object make_reader(std::shared_ptr<FeedReader> reader) {
  return nb::cast(PyReader{OwnedHere(std::move(reader))});
}

void register_feed(const std::shared_ptr<FeedReader>& reader) {
  std::erase_if(own_feeds(), [](const auto& entry) { return entry.second.expired(); });
  own_feeds()[reader->identity()] = reader;
}

void bind_batch(nb::module_& m) {
  nb::class_<ByReference>(m, "ByReference", "While it lives, a batch is pickled by reference.")
      .def(
          "__reduce__",
          [](const ByReference& self) {
            self.end();
            return nb::make_tuple(nb::borrow(reinterpret_cast<PyObject*>(Py_TYPE(Py_None))),
                                  nb::make_tuple());
          },
          nb::sig("def __reduce__(self) -> tuple[object, ...]"));
  nb::class_<PyBatch>(m, "Batch", "A batch in this process; keeps its memory.")
      .def(
          "__init__",
          [](PyBatch* self, std::uint64_t feed, std::uint64_t ticket) {
            new (self) PyBatch(received(feed, ticket));
          },
          nb::arg("feed"), nb::arg("ticket"))
      .def(
          "__reduce__",
          [](nb::handle_t<PyBatch> self) {
            const auto& batch = nb::cast<const PyBatch&>(self);
            if (!goes_by_reference(self.ptr())) {
              throw nb::type_error("a Batch is pickled with its samples, by reference");
            }
            return nb::make_tuple(self.type(),
                                  nb::make_tuple(batch.reader->identity(), batch.view.ticket));
          },
          nb::sig("def __reduce__(self) -> tuple[object, ...]"))
      .def(
          "by_reference", [](const PyBatch& b) { return new ByReference(b); },
          "Until it has been pickled this thread pickles the batch's samples by reference.")
      .def_prop_ro("ticket", [](const PyBatch& b) { return b.view.ticket; })
      .def_prop_ro("epoch", [](const PyBatch& b) { return b.view.epoch; })
      .def_prop_ro("step", [](const PyBatch& b) { return b.view.step; })
      .def_prop_ro("abandoned", [](const PyBatch& b) { return b.view.abandoned; })
      .def("__len__", [](const PyBatch& b) { return b.view.items.size(); })
      .def_prop_ro("ids", ids_of)
      .def("contents", contents, nb::sig("def contents(self) -> list[Sample | Exception]"));
  nb::class_<PyReader>(m, "FeedReader", "Reads tickets, in the owner's process or in a worker.")
      .def_static("attach", attach, nb::arg("fd"))
      .def("wait", wait, nb::arg("ticket"), nb::arg("timeout"),
           nb::sig("def wait(self, ticket: int, timeout: float) -> Batch | None"))
      .def(
          "release", [](const PyReader& self) { (*self.reader)->release(); },
          "At a worker's end: lets go of all batches, whoever holds them still.");
}

}  // namespace quiver::py
