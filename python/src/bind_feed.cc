#include <algorithm>

#include "batch.h"
#include "cache/client/feed.h"
#include "uneven.h"

namespace quiver::py {
namespace {

using cache::EpochReport;
using cache::Feed;
using cache::FeedOptions;

Duration seconds(double s) {
  return Duration(static_cast<std::int64_t>(s * 1e9));
}

cache::Mode mode_from(const std::string& text) {
  if (text == "substitute") return cache::Mode::kSubstitute;
  if (text == "strict") return cache::Mode::kStrict;
  raise(error(Code::kInvalid, "mode='{}': use 'substitute' or 'strict'", text));
}

std::vector<ItemId> items_from(const std::vector<std::uint32_t>& ids) {
  std::vector<ItemId> items;
  items.reserve(ids.size());
  for (const std::uint32_t id : ids) items.emplace_back(id);
  return items;
}

// The feed, with what must outlive it. Destroying it joins threads: without the GIL.
struct Fed {
  std::shared_ptr<World> world;
  std::unique_ptr<Feed> feed;

  Fed(std::shared_ptr<World> w, std::unique_ptr<Feed> f)
      : world(std::move(w)), feed(std::move(f)) {}
  Fed(Fed&&) noexcept = default;
  ~Fed() {
    if (!feed) return;
    nb::gil_scoped_release release;
    feed.reset();
  }
};

struct PyFeed {
  OwnedHere<Fed> fed;
  Feed& operator*() const { return *fed->feed; }
  Feed* operator->() const { return fed->feed.get(); }
};

void make_feed(PyFeed* self, const PyDataset& dataset, std::uint32_t batch_size, bool shuffle,
               bool drop_last, const std::string& mode, std::uint64_t seed, std::uint32_t world,
               std::uint32_t rank, const std::string& uneven,
               const std::vector<std::uint32_t>& subset, std::uint32_t read_ahead,
               std::uint32_t max_tickets, std::uint32_t reader_threads, std::uint64_t memory_limit,
               const nb::bytes& job) {
  FeedOptions options{.batch_size = batch_size,
                      .shuffle = shuffle,
                      .drop_last = drop_last,
                      .mode = mode_from(mode),
                      .seed = seed,
                      .world = world,
                      .rank = rank,
                      .uneven = uneven_from(uneven),
                      .subset = items_from(subset),
                      .read_ahead = read_ahead,
                      .max_tickets = max_tickets,
                      .reader_threads = reader_threads,
                      .memory_limit = Bytes(memory_limit),
                      .job = {}};
  if (job.size() != 0 && job.size() != options.job.size()) {
    raise(error(Code::kInvalid, "a job's id has 16 bytes, this one {}", job.size()));
  }
  std::memcpy(options.job.data(), job.c_str(), job.size());
  const DatasetHandle& handle = *dataset.handle;
  auto feed = blocking([&] {
    return Feed::create(handle.dataset, std::move(options), handle.world->environment());
  });
  register_feed(feed->reader());
  new (self) PyFeed{OwnedHere(Fed(handle.world, std::move(feed)))};
}

void load_state(PyFeed& self, const std::vector<const cache::RankState*>& parts) {
  std::vector<cache::RankState> copies;
  for (const cache::RankState* part : parts) copies.push_back(*part);
  const cache::JobState job = unwrap(cache::merge(copies));
  blocking([&] { return self->load_state(job); });
}

void replay(PyFeed& self, const std::vector<std::vector<std::uint32_t>>& batches) {
  std::vector<std::vector<ItemId>> items;
  items.reserve(batches.size());
  for (const auto& batch : batches) items.push_back(items_from(batch));
  blocking([&] { return self->replay(std::move(items)); });
}

void bind_report(nb::module_& m) {
  nb::class_<EpochReport>(m, "EpochReport", "Where the time and the bytes of an epoch went.")
      .def_ro("epoch", &EpochReport::epoch)
      .def_ro("seconds", &EpochReport::seconds)
      .def_ro("waited_link_s", &EpochReport::waited_link_s)
      .def_ro("waited_decode_s", &EpochReport::waited_decode_s)
      .def_ro("samples", &EpochReport::samples)
      .def_ro("batches", &EpochReport::batches)
      .def_ro("repeats", &EpochReport::repeats)
      .def_ro("skipped", &EpochReport::skipped)
      .def_prop_ro("tiers",
                   [](const EpochReport& r) {
                     return std::vector<std::uint64_t>(std::begin(r.tiers), std::end(r.tiers));
                   })
      .def_ro("settled", &EpochReport::settled)
      .def_ro("origin_bytes", &EpochReport::origin_bytes)
      .def_ro("degraded", &EpochReport::degraded);
}

}  // namespace

void bind_feed(nb::module_& m) {
  bind_report(m);
  const FeedOptions defaults;
  nb::class_<PyFeed>(m, "Feed", "The batches of one rank, drawn and read ahead.")
      .def("__init__", make_feed, nb::arg("dataset"), nb::kw_only(), nb::arg("batch_size"),
           nb::arg("shuffle"), nb::arg("drop_last"), nb::arg("mode"), nb::arg("seed"),
           nb::arg("world"), nb::arg("rank"), nb::arg("uneven"), nb::arg("subset"),
           nb::arg("read_ahead") = defaults.read_ahead,
           nb::arg("max_tickets") = defaults.max_tickets,
           nb::arg("reader_threads") = defaults.reader_threads,
           nb::arg("memory_limit") = defaults.memory_limit.value, nb::arg("job") = nb::bytes("", 0))
      .def_prop_ro("shared_fd", [](const PyFeed& s) { return s->shared_fd(); })
      .def(
          "reader", [](const PyFeed& s) { return make_reader(s->reader()); },
          nb::sig("def reader(self) -> FeedReader"))
      .def_prop_ro("batches", [](const PyFeed& s) { return s->batches(); })
      .def("begin_epoch", [](PyFeed& s) { blocking([&] { return s->begin_epoch(); }); })
      .def("abandon",
           [](PyFeed& s) {
             nb::gil_scoped_release release;
             s->abandon();
           })
      .def("issue", [](PyFeed& s) { return s->issue(); })
      .def(
          "delivered",
          [](PyFeed& s, std::uint64_t ticket, std::uint32_t skipped, double waited, double decoding,
             double since_decoded, std::uint32_t workers) {
            s->delivered(ticket, skipped,
                         {.waited = seconds(waited),
                          .decoding = seconds(decoding),
                          .since_decoded = seconds(since_decoded),
                          .workers = workers});
          },
          nb::arg("ticket"), nb::arg("skipped"), nb::arg("waited") = 0.0, nb::arg("decoding") = 0.0,
          nb::arg("since_decoded") = 0.0, nb::arg("workers") = 0,
          "Times in seconds; workers decode beside the loop.")
      .def_prop_ro("epoch", [](const PyFeed& s) { return s->epoch(); })
      .def(
          "set_epoch", [](PyFeed& s, std::uint64_t epoch) { s->set_epoch(epoch); },
          nb::arg("epoch"))
      .def("state", [](const PyFeed& s) { return s->state(); })
      .def("load_state", load_state, nb::arg("parts"))
      .def("replay", replay, nb::arg("batches"))
      .def("report", [](const PyFeed& s) { return s->report(); })
      .def("close", [](PyFeed& s) {
        nb::gil_scoped_release release;
        s->close();
      });
}

}  // namespace quiver::py
