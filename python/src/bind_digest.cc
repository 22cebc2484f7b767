#include <condition_variable>
#include <mutex>
#include <thread>

#include "cache/client/digest.h"
#include "cache/client/digest_lazy.h"
#include "settings_of.h"

namespace quiver::py {
namespace {

using cache::DigestOptions;
using cache::DigestProgress;
using cache::DigestReport;

cache::Layout layout_from(const std::string& text) {
  return unwrap(cache::layout_of(text));
}

// A digest on a thread of its own, so that the caller's can run Python's callback and see Ctrl-C.
class Digesting {
 public:
  Digesting(DigestOptions options, std::shared_ptr<World> world)
      : thread_([this, options = std::move(options), world](std::stop_token stop) {
          auto result = cache::digest(
              options, world->environment(), [this](const DigestProgress& p) { publish(p); }, stop);
          const std::lock_guard lock(mutex_);
          result_ = std::move(result);
          changed_.notify_all();
        }) {}

  // Waits a moment for news; true when it has ended.
  bool poll(DigestProgress& progress) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return result_.has_value(); });
    progress = progress_;
    return result_.has_value();
  }
  void stop() { thread_.request_stop(); }
  Result<DigestReport> take() { return std::move(*result_); }

 private:
  void publish(const DigestProgress& progress) {
    const std::lock_guard lock(mutex_);
    progress_ = progress;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  DigestProgress progress_;
  std::optional<Result<DigestReport>> result_;
  std::jthread thread_;  // last: it uses the others
};

DigestReport digest(const std::string& url, const std::string& layout, const std::string& path,
                    const Settings& settings, const PyCredentials& credentials,
                    const std::string& daemon_program, bool allow_empty, bool lazy,
                    const nb::callable& progress) {
  auto world = std::make_shared<World>();
  DigestOptions options;
  options.origin = unwrap(cache::user_origin(url, settings, credentials.now(), world->files));
  options.credentials = credentials.shared();
  options.layout = layout_from(layout);
  options.allow_empty = allow_empty;
  options.lazy = lazy;
  options.manifest_path = path;
  options.settings = settings;
  options.daemon_program = daemon_program;
  Digesting running(std::move(options), world);
  for (bool ended = false; !ended;) {
    DigestProgress news;
    {
      nb::gil_scoped_release release;
      ended = running.poll(news);
    }
    try {
      if (PyErr_CheckSignals() != 0) nb::raise_python_error();
      progress(news);
    } catch (...) {
      running.stop();
      nb::gil_scoped_release release;
      while (!running.poll(news)) {
      }
      throw;
    }
  }
  return unwrap(running.take());
}

std::string manifest_path_for(const std::string& url, const std::string& layout,
                              const Settings& settings, const PyCredentials& credentials) {
  io::RealFiles files;
  const auto origin = unwrap(cache::user_origin(url, settings, credentials.now(), files));
  return cache::manifest_path_for(settings, origin, layout_from(layout));
}

}  // namespace

void bind_digest(nb::module_& m) {
  nb::class_<DigestProgress>(m, "DigestProgress")
      .def_ro("objects_listed", &DigestProgress::objects_listed)
      .def_ro("items_done", &DigestProgress::items_done)
      .def_ro("items_total", &DigestProgress::items_total)
      .def_prop_ro("bytes_done", [](const DigestProgress& p) { return p.bytes_done.value; })
      .def_prop_ro("bytes_total", [](const DigestProgress& p) { return p.bytes_total.value; })
      .def_ro("listing", &DigestProgress::listing)
      .def_ro("archives", &DigestProgress::archives);
  nb::class_<DigestReport>(m, "DigestReport")
      .def_ro("manifest_path", &DigestReport::manifest_path)
      .def_ro("public_id", &DigestReport::public_id)
      .def_ro("items", &DigestReport::items)
      .def_ro("classes", &DigestReport::classes)
      .def_ro("left_out", &DigestReport::left_out)
      .def_ro("downloaded", &DigestReport::downloaded)
      .def_ro("kept", &DigestReport::kept)
      .def_prop_ro("bytes", [](const DigestReport& r) { return r.bytes.value; })
      .def_prop_ro("downloaded_bytes",
                   [](const DigestReport& r) { return r.downloaded_bytes.value; });
  m.def("digest", digest, nb::arg("url"), nb::kw_only(), nb::arg("layout"), nb::arg("path"),
        nb::arg("settings"), nb::arg("credentials"), nb::arg("daemon_program"),
        nb::arg("allow_empty"), nb::arg("lazy"), nb::arg("progress"),
        nb::sig("def digest(url: str, *, layout: str, path: str, settings: Settings, credentials: "
                "Credentials, daemon_program: str, allow_empty: bool, lazy: bool, progress: "
                "collections.abc.Callable[[DigestProgress], object]) -> DigestReport"));
  m.def("lazy_manifest_path", cache::lazy_manifest_path, nb::arg("path"));
  m.def("manifest_path_for", manifest_path_for, nb::arg("url"), nb::arg("layout"),
        nb::arg("settings"), nb::arg("credentials"));
}

}  // namespace quiver::py
