#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "cache/server/requests.h"

namespace quiver::cache {

namespace {

// The manifest that the client presents, checked once: one that is byte for byte the same as the
// one that is in use needs no more.
Result<std::shared_ptr<const Manifest>> proven(const RequestContext& context, io::Fd fd,
                                               const Sha256& root) {
  auto known =
      TRY(context.events.ask([root](Control& control) -> Result<std::shared_ptr<const Manifest>> {
        return control.manifest_of(root);
      }));
  io::Fd again = TRY(duplicate(fd.get()));
  auto manifest = TRY(Manifest::open(std::move(fd), "the client's manifest", known == nullptr));
  if (known != nullptr) {
    const ByteSpan a = known->file_bytes(), b = manifest->file_bytes();
    if (std::equal(a.begin(), a.end(), b.begin(), b.end())) return known;
    // Equal content in another place has the same root but other bytes.
    manifest = TRY(Manifest::open(std::move(again), "the client's manifest", true));
  }
  if (manifest->root() != root) {
    return error(Code::kInvalid, "the manifest is not the one whose root the client gave");
  }
  return manifest;
}

// A cache within its own source would become part of it.
Status check_apart(const std::string& url, const std::string& cache_directory) {
  constexpr std::string_view kFile = "file://";
  std::string source = url.starts_with(kFile) ? url.substr(kFile.size()) : url;
  if (!source.starts_with('/')) return {};
  const auto folder = [](const std::string& path) {
    std::string normal = std::filesystem::path(path).lexically_normal().string();
    if (!normal.ends_with('/')) normal += '/';
    return normal;
  };
  if (!folder(cache_directory).starts_with(folder(source))) return {};
  return error(Code::kInvalid,
               "the cache directory '{}' lies within the dataset's own directory '{}': set "
               "cache_dir to another place",
               cache_directory, source);
}

// Of the ranks of a job that begins, one has the dataset's state built and the others wait for it:
// else each would, for a moment, cost the memory of one.
class BuildTurn {
 public:
  static Result<BuildTurn> take(const RequestContext& context, const Sha256& root,
                                std::stop_token stop) {
    const bool mine = context.building.wait_for(
        stop, limits::kBuildWait, [&](const auto& roots) { return !roots.contains(root); },
        [&](auto& roots) { roots.insert(root); });
    if (!mine) return error(Code::kUnavailable, "the dataset is still being opened; ask again");
    return BuildTurn(context.building, root);
  }
  BuildTurn(BuildTurn&& other) noexcept
      : roots_(std::exchange(other.roots_, nullptr)), root_(other.root_) {}
  ~BuildTurn() {
    if (roots_ != nullptr) roots_->change([&](auto& roots) { roots.erase(root_); });
  }

 private:
  BuildTurn(Guarded<std::set<Sha256>>& roots, const Sha256& root) : roots_(&roots), root_(root) {}
  Guarded<std::set<Sha256>>* roots_;
  Sha256 root_;
};

struct Look {
  bool known = false;
  std::uint64_t relocations = 0;
};

}  // namespace

// A dataset: proves the manifest, brings a way to the origin; brings back the view.
Result<rpc::Reply> handle_open(const RequestContext& context, ConnectionState& connection,
                               rpc::Message& request, std::stop_token stop) {
  OpenRequest open = TRY(decode<OpenRequest>(request.payload));
  if (request.fds.size() != 1) {
    return error(Code::kInvalid, "opening a dataset takes one descriptor, of its manifest");
  }
  auto manifest = TRY(proven(context, std::move(request.fds[0]), open.root));
  const Settings& settings = context.options.settings;
  if (open.origin.url.empty()) open.origin.url = std::string(manifest->origin_url());
  if (Status ok = check_apart(open.origin.url, context.options.cache_directory); !ok) {
    return std::move(ok).error();
  }
  const Bytes most = settings.rate_limit;
  if (most.value != 0 && (open.origin.rate_limit.value == 0 || open.origin.rate_limit > most)) {
    open.origin.rate_limit = most;
  }
  const auto& env = context.environment;
  auto credentials = std::make_shared<RenewableCredentials>(open.origin.credentials());
  std::shared_ptr<Origin> origin = TRY(open_origin(
      open.origin,
      OriginContext{
          env.files, env.http, env.clock, connection.session, {}, &context.paces, credentials}));
  const BuildTurn turn = TRY(BuildTurn::take(context, open.root, stop));
  const Look look = TRY(context.events.ask([&](Control& control) -> Result<Look> {
    if (control.manifest_of(open.root) != nullptr) return Look{true, 0};
    Status room = control.room_in_memory(DatasetState::memory_of(*manifest));
    if (!room) return std::move(room).error();
    return Look{false, control.relocations()};
  }));
  std::unique_ptr<DatasetState> built;
  if (!look.known) {
    std::optional<ReadLog> log;
    if (manifest->provisional()) {
      log = TRY(ReadLog::open(env.files, context.options.cache_directory + "/provisional",
                              public_id(open.root), manifest->size()));
    }
    built = TRY(DatasetState::build(manifest, context.store, std::move(log)));
  }

  io::Fd view;
  const auto opened = TRY(context.events.ask([&](Control& control) -> Result<Control::Opened> {
    auto result = TRY(control.open_dataset(
        connection.session, std::move(built),
        SessionDataset{nullptr, std::move(origin), manifest, std::move(credentials), {}},
        look.relocations));
    view = TRY(duplicate(result.view_fd));
    return result;
  }));
  OpenReply reply;
  reply.dataset = opened.handle;
  reply.public_id = opened.public_id;
  reply.items = opened.items;
  reply.verify_one_in = settings.verify == Verify::kFill     ? 0
                        : settings.verify == Verify::kAlways ? 1
                                                             : 64;
  rpc::Reply out = reply_with(reply);
  out.fds.push_back(std::move(view));
  return out;
}

// What the session reads the dataset with has expired, or is about to.
Result<rpc::Reply> handle_renew(const RequestContext& context, ConnectionState& connection,
                                rpc::Message& request) {
  const RenewRequest renew = TRY(decode<RenewRequest>(request.payload));
  const Status renewed = context.events.ask(
      [&](Control& control) -> Status { return control.renew(connection.session, renew); });
  if (!renewed) return renewed.error();
  return rpc::Reply{};
}

}  // namespace quiver::cache
