// quiver: the command line. Wires the parts, finds the command, turns its failure into a status.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "cache/client/user_settings.h"
#include "cache/server/server.h"
#include "exit_status.h"
#include "io/process.h"
#include "quiver_commands.h"

namespace quiver {
namespace {

// quiverd lies beside this program.
std::string daemon_beside(io::Files& files) {
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0) return {};
  std::string beside(path, static_cast<std::size_t>(size));
  beside = beside.substr(0, beside.rfind('/') + 1) + "quiverd";
  return files.stat(beside) ? beside : std::string();
}

int report(const Result<int>& result, bool json) {
  if (result) return *result;
  const Error& failure = result.error();
  if (json) {
    const nlohmann::json out{
        {"error", {{"code", std::string(name(failure.code))}, {"message", failure.message}}}};
    std::puts(out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    std::fprintf(stderr, "quiver: %s\n", failure.message.c_str());
  }
  return exit_status(failure.code);
}

// Ctrl-C ends what runs in an orderly way; a second one at once.
void wait_for_interrupt(const sigset_t& signals, std::stop_source& stop, std::stop_token ended) {
  while (!ended.stop_requested()) {
    const timespec patience{0, 100'000'000};
    if (sigtimedwait(&signals, nullptr, &patience) <= 0) continue;
    if (stop.stop_requested()) ::_exit(130);
    stop.request_stop();
  }
}

using Action = std::function<Result<int>(const Command&)>;

int run(bool json, const Action& action) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  io::RealFiles files;
  RealClock clock;
  auto settings = cache::user_settings({}, files);
  if (!settings) return report(std::move(settings).error(), json);
  StderrLog sink(json ? LogLevel::kError : settings->log_level);
  const auto http = io::make_curl_transport(settings->fetch_concurrency + 2);
  std::stop_source stop;
  std::jthread interrupt([&](std::stop_token ended) { wait_for_interrupt(signals, stop, ended); });
  const Command command{
      {files, *http, clock, sink}, *settings, json, daemon_beside(files), stop.get_token()};
  return report(action(command), json);
}

}  // namespace
}  // namespace quiver

int main(int argc, char** argv) {
  using namespace quiver;
  CLI::App app{"Quiver: a cache that knows what your training jobs need next"};
  app.require_subcommand(1);
  bool json = false, all = false, verify = false;
  std::string target;
  DigestArguments digest;
  Action action;
  const auto add = [&](const char* name, const char* help, Action its) {
    CLI::App* command = app.add_subcommand(name, help);
    command->add_flag("--json", json, "Print one JSON object");
    command->callback([&action, its = std::move(its)] { action = its; });
    return command;
  };
  add("status", "What is cached, who reads it, and how well", run_status);
  CLI::App* make = add("digest", "Make the manifest of what lies at a URL",
                       [&](const Command& c) { return run_digest(c, digest); });
  make->add_option("url", digest.url, "s3://bucket/prefix, https://…, or a directory")->required();
  make->add_option("--layout", digest.layout, "image_folder (default) or files");
  make->add_option("--manifest", digest.manifest, "Where to write it");
  CLI::App* warm = add("warm", "Fill the cache with a dataset before a job needs it",
                       [&](const Command& c) { return run_warm(c, target, verify); });
  warm->add_option("target", target, "A URL that was digested, or a manifest (.qvm)")->required();
  warm->add_flag("--verify", verify, "Fail unless all of it is here; reads it to be sure");
  CLI::App* evict = add("evict", "Remove a dataset from the cache",
                        [&](const Command& c) { return run_evict(c, target, all); });
  evict->add_option("target", target, "An id of `quiver status`, a URL, or a manifest (.qvm)");
  evict->add_flag("--all", all, "Remove everything");
  add("stop", "Stop the daemon; it starts again with the next job", run_stop);
  add("explain", "Every setting, its value and where that came from", run_explain);
  add("version", "The version of this program", [](const Command& c) -> Result<int> {
    std::puts(c.json ? R"({"version": "quiver-cache 0.1.0"})" : cache::kSoftware);
    return 0;
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::fprintf(stderr, "quiver: %s; see quiver --help\n", error.what());
    return exit_status(Code::kInvalid);
  }
  return run(json, action);
}
