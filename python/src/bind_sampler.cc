#include "cache/sampler/job_state.h"
#include "cache/sampler/permutation.h"
#include "cache/sampler/ranks.h"
#include "uneven.h"

namespace quiver::py {
namespace {

using cache::ItemSet;
using cache::RankState;

std::string_view bytes_of(const nb::bytes& b) {
  return {b.c_str(), b.size()};
}

struct PyChain {
  cache::DeliveryChain chain;
};

void add_to_chain(PyChain& self, std::uint64_t epoch, std::uint32_t step, std::uint32_t rank,
                  const std::vector<std::uint32_t>& ids) {
  std::vector<ItemId> items;
  items.reserve(ids.size());
  for (const std::uint32_t id : ids) items.emplace_back(id);
  self.chain.add(epoch, step, rank, items);
}

// A seed for the random state of one item, the same whoever loads it.
std::uint64_t item_seed(std::uint64_t seed, std::uint64_t epoch, std::uint32_t id) {
  cache::Stream stream({seed ^ (epoch * 0x9e3779b97f4a7c15ULL), id + (std::uint64_t{1} << 32)});
  return stream.next();
}

std::uint32_t batches_of_rank(std::uint32_t items, std::uint32_t world, std::uint32_t rank,
                              std::uint32_t batch_size, bool drop_last, const std::string& uneven) {
  return cache::batches_of_rank({.items = items,
                                 .world = world,
                                 .rank = rank,
                                 .batch_size = batch_size,
                                 .drop_last = drop_last,
                                 .uneven = uneven_from(uneven)});
}

}  // namespace

cache::Uneven uneven_from(const std::string& text) {
  if (text == "pad") return cache::Uneven::kPad;
  if (text == "drop") return cache::Uneven::kDrop;
  if (text == "keep") return cache::Uneven::kKeep;
  raise(error(Code::kInvalid, "uneven='{}': use 'pad', 'drop' or 'keep'", text));
}

std::vector<std::uint32_t> ids_in(const ItemSet& set) {
  std::vector<std::uint32_t> ids;
  ids.reserve(set.count());
  set.for_each([&](ItemId id) { ids.push_back(id.value); });
  return ids;
}

void bind_sampler(nb::module_& m) {
  nb::class_<RankState>(m, "RankState", "The part of one rank in a checkpoint.")
      .def_static(
          "decode",
          [](const nb::bytes& b) { return unwrap(cache::decode_rank_state(bytes_of(b))); },
          nb::arg("data"))
      .def("encode",
           [](const RankState& s) {
             const std::string bytes = cache::encode(s);
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def_ro("dataset", &RankState::dataset)
      .def_ro("items", &RankState::items)
      .def_ro("seed", &RankState::seed)
      .def_ro("epoch", &RankState::epoch)
      .def_ro("step", &RankState::step)
      .def_ro("world", &RankState::world)
      .def_ro("rank", &RankState::rank)
      .def_ro("batch_size", &RankState::batch_size)
      .def_ro("mode", &RankState::mode)
      .def_ro("pads", &RankState::pads)
      .def_prop_ro("delivered", [](const RankState& s) { return s.delivered.count(); })
      .def_prop_ro("delivered_before",
                   [](const RankState& s) { return s.delivered_before.count(); })
      .def("delivered_ids", [](const RankState& s) { return ids_in(s.delivered); })
      .def("ids_before", [](const RankState& s) { return ids_in(s.delivered_before); })
      .def_prop_ro("chain", [](const RankState& s) { return s.chain.hex(); });
  nb::class_<PyChain>(m, "DeliveryChain", "SHA-256 over what was delivered.")
      .def(
          "__init__",
          [](PyChain* self, const std::string& hex) {
            new (self) PyChain{
                cache::DeliveryChain::from(hex.empty() ? Sha256{} : unwrap(Sha256::from_hex(hex)))};
          },
          nb::arg("start") = "")
      .def("add", add_to_chain, nb::arg("epoch"), nb::arg("step"), nb::arg("rank"), nb::arg("ids"))
      .def_prop_ro("value", [](const PyChain& s) { return s.chain.value().hex(); });
  m.def("item_seed", item_seed, nb::arg("seed"), nb::arg("epoch"), nb::arg("id"));
  m.def("batches_of_rank", batches_of_rank, nb::arg("items"), nb::arg("world"), nb::arg("rank"),
        nb::arg("batch_size"), nb::arg("drop_last"), nb::arg("uneven"));
  m.def(
      "check_states",
      [](const std::vector<const RankState*>& parts) {
        std::vector<RankState> copies;
        for (const RankState* part : parts) copies.push_back(*part);
        static_cast<void>(unwrap(cache::merge(copies)));
      },
      nb::arg("parts"), "Raises InvalidError unless the parts are one state of a whole job.");
}

}  // namespace quiver::py
