#include <fcntl.h>

#include "cache/manifest/manifest.h"
#include "cache/manifest/web_sample.h"
#include "core.h"

namespace quiver::py {
namespace {

using cache::Manifest;
using Shared = std::shared_ptr<const Manifest>;

struct PyManifest {
  Shared manifest;
};

cache::Item item_at(const PyManifest& self, std::uint32_t id) {
  if (id >= self.manifest->size()) {
    throw nb::index_error(
        fmt::format("item {} of a dataset of {}", id, self.manifest->size()).c_str());
  }
  return self.manifest->item(ItemId(id));
}

nb::str text(std::string_view bytes) {  // keys are opaque bytes
  PyObject* decoded =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape");
  if (decoded == nullptr) nb::raise_python_error();
  return nb::steal<nb::str>(decoded);
}

PyManifest open_manifest(const std::string& path, bool verify) {
  return {blocking([&]() -> Result<Shared> {
    io::RealFiles files;
    return Manifest::open(files, path, verify);
  })};
}

PyManifest from_descriptor(int fd) {
  return {blocking([&]() -> Result<Shared> {
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0) return os_error(errno, "duplicating the manifest's descriptor");
    return Manifest::open(io::Fd(own), "manifest", false);
  })};
}

std::vector<std::int32_t> labels_of(const PyManifest& self, const std::vector<std::uint32_t>& ids) {
  std::vector<std::int32_t> labels;
  labels.reserve(ids.size());
  for (const std::uint32_t id : ids) labels.push_back(item_at(self, id).label);
  return labels;
}

// All labels as 32-bit integers in the machine's order, for numpy.frombuffer.
nb::bytes packed_labels(const PyManifest& self) {
  const std::uint32_t n = self.manifest->size();
  PyObject* bytes = PyBytes_FromStringAndSize(nullptr, Py_ssize_t{4} * n);
  if (bytes == nullptr) nb::raise_python_error();
  auto* out = reinterpret_cast<std::int32_t*>(PyBytes_AS_STRING(bytes));
  for (std::uint32_t i = 0; i < n; ++i) out[i] = self.manifest->item(ItemId(i)).label;
  return nb::steal<nb::bytes>(bytes);
}

// The stem of a sample and its files, by extension, from a buffer over its item.
nb::tuple take_apart(const PyManifest& self, std::uint32_t id, const nb::object& item) {
  Py_buffer view;
  if (PyObject_GetBuffer(item.ptr(), &view, PyBUF_SIMPLE) != 0) nb::raise_python_error();
  const std::unique_ptr<Py_buffer, decltype(&PyBuffer_Release)> release(&view, PyBuffer_Release);
  const ByteSpan bytes(static_cast<const std::byte*>(view.buf), static_cast<std::size_t>(view.len));
  const cache::SampleFiles sample = unwrap(cache::take_apart(bytes, item_at(self, id).key));
  nb::list files;
  for (const auto& [extension, content] : sample.files) {
    files.append(nb::make_tuple(text(extension), nb::bytes(content.data(), content.size())));
  }
  return nb::make_tuple(text(sample.stem), files);
}

}  // namespace

void bind_manifest(nb::module_& m) {
  nb::class_<PyManifest>(m, "Manifest", "What a dataset is; immutable, read in place.")
      .def_static("open", open_manifest, nb::arg("path"), nb::arg("verify") = false)
      .def_static("from_descriptor", from_descriptor, nb::arg("fd"))
      .def("__len__", [](const PyManifest& s) { return s.manifest->size(); })
      .def(
          "key", [](const PyManifest& s, std::uint32_t id) { return text(item_at(s, id).key); },
          nb::arg("id"))
      .def(
          "label", [](const PyManifest& s, std::uint32_t id) { return item_at(s, id).label; },
          nb::arg("id"))
      .def(
          "length",
          [](const PyManifest& s, std::uint32_t id) { return item_at(s, id).length.value; },
          nb::arg("id"))
      .def(
          "object_key",
          [](const PyManifest& s, std::uint32_t id) {
            return text(s.manifest->object(item_at(s, id).object).key);
          },
          nb::arg("id"), "Of the object that an item lies in.")
      .def("take_apart", take_apart, nb::arg("id"), nb::arg("item"),
           nb::sig("def take_apart(self, id: int, item: Sample) -> tuple[str, list[tuple[str, "
                   "bytes]]]"),
           "The stem and the files, by extension, of an item that is a sample in an archive.")
      .def("labels_of", labels_of, nb::arg("ids"))
      .def("packed_labels", packed_labels)
      .def_prop_ro("classes",
                   [](const PyManifest& s) {
                     nb::list names;
                     for (std::uint32_t i = 0; i < s.manifest->class_count(); ++i) {
                       names.append(text(s.manifest->class_name(i)));
                     }
                     return nb::typed<nb::list, nb::str>(names);
                   })
      .def_prop_ro("origin_url", [](const PyManifest& s) { return text(s.manifest->origin_url()); })
      .def_prop_ro("public_id", [](const PyManifest& s) { return public_id(s.manifest->root()); })
      // Of what was listed, whatever the bytes are.
      .def_prop_ro("listing_id",
                   [](const PyManifest& s) { return public_id(cache::listing_hash(*s.manifest)); })
      .def_prop_ro("provisional", [](const PyManifest& s) { return s.manifest->provisional(); })
      .def_prop_ro("total_bytes",
                   [](const PyManifest& s) { return s.manifest->total_bytes().value; })
      .def_prop_ro("longest_item",
                   [](const PyManifest& s) { return s.manifest->longest_item().value; })
      .def_prop_ro("descriptor", [](const PyManifest& s) { return s.manifest->descriptor(); });
}

}  // namespace quiver::py
