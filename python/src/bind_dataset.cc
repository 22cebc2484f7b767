#include "cache/client/dataset.h"
#include "sample.h"
#include "settings_of.h"

namespace quiver::py {
namespace {

using cache::ReadStats;

PyDataset open_dataset(const std::string& manifest_path, const std::string& url,
                       const Settings& settings, const PyCredentials& credentials,
                       const std::string& daemon_program, const std::string& name) {
  auto world = std::make_shared<World>();
  auto dataset = blocking([&]() -> Result<std::shared_ptr<cache::Dataset>> {
    cache::DatasetOptions options;
    options.manifest_path = manifest_path;
    options.origin = TRY(cache::user_origin(url, settings, credentials.now(), world->files));
    options.credentials = credentials.shared();
    options.settings = settings;
    options.daemon_program = daemon_program;
    options.name = name;
    return cache::Dataset::open(std::move(options), world->environment());
  });
  return {OwnedHere(DatasetHandle(std::move(world), std::move(dataset)))};
}

std::size_t checked_length(const PyDataset& self, std::uint32_t id) {
  const cache::Manifest& manifest = self.handle->dataset->manifest();
  if (id >= manifest.size()) {
    throw nb::index_error(fmt::format("item {} of a dataset of {}", id, manifest.size()).c_str());
  }
  return manifest.item(ItemId(id)).length.value;
}

nb::object read(const PyDataset& self, std::uint32_t id) {
  const std::size_t length = checked_length(self, id);
  std::shared_ptr<std::byte[]> memory(new std::byte[length]);
  blocking([&] {
    return self.handle->dataset->read(ItemId(id), MutableByteSpan(memory.get(), length), {});
  });
  const nb::object owner = keep_alive(memory);
  return nb::steal(new_sample(ByteSpan(memory.get(), length), id, owner.ptr()));
}

void want(const PyDataset& self, const std::vector<std::uint32_t>& ids) {
  std::vector<ItemId> items;
  for (const std::uint32_t id : ids) {
    static_cast<void>(checked_length(self, id));
    items.emplace_back(id);
  }
  nb::gil_scoped_release release;
  self.handle->dataset->want(items);
}

bool connect(const PyDataset& self) {
  nb::gil_scoped_release release;
  return self.handle->dataset->view() != nullptr;
}

template <class T>
std::vector<std::uint64_t> as_list(const T (&values)[cache::kTiers]) {
  return {std::begin(values), std::end(values)};
}

}  // namespace

void bind_dataset(nb::module_& m) {
  nb::class_<ReadStats>(m, "ReadStats", "Counters of this process for a dataset, by tier.")
      .def_prop_ro("items", [](const ReadStats& s) { return as_list(s.items); })
      .def_prop_ro("bytes", [](const ReadStats& s) { return as_list(s.bytes); })
      .def_ro("stale", &ReadStats::stale)
      .def_ro("corrupt", &ReadStats::corrupt)
      .def_prop_ro("direct_origin_bytes",
                   [](const ReadStats& s) { return s.direct_origin_bytes.value; });
  nb::class_<PyDataset>(m, "Dataset", nb::is_weak_referenceable(),
                        "What a process holds to read items.")
      .def_static("open", open_dataset, nb::kw_only(), nb::arg("manifest_path"), nb::arg("url"),
                  nb::arg("settings"), nb::arg("credentials"), nb::arg("daemon_program"),
                  nb::arg("name"))
      .def("read", read, nb::arg("id"), nb::sig("def read(self, id: int) -> Sample"))
      .def("want", want, nb::arg("ids"))
      .def("connect", connect, "Joins or starts a daemon; False while there is none.")
      .def(
          "credentials_renewed",
          [](const PyDataset& self) {
            nb::gil_scoped_release release;
            self.handle->dataset->credentials_renewed();
          },
          "Tells the daemon.")
      .def("stats", [](const PyDataset& s) { return s.handle->dataset->stats(); })
      .def_prop_ro("generation", [](const PyDataset& s) { return s.handle->dataset->generation(); })
      .def_prop_ro("degraded", [](const PyDataset& s) { return s.handle->dataset->degraded(); });
}

}  // namespace quiver::py
