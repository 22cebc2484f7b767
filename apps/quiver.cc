// quiver: the command line. Wires the parts, finds the command, turns its failure into a status.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/text.h"
#include "cache/client/user_settings.h"
#include "cache/server/server.h"
#include "exit_status.h"
#include "io/process.h"
#include "quiver_commands.h"
#include "quiver_text.h"

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
    print_json({{"error", error_json(failure)}});
  } else {
    std::fprintf(stderr, "quiver: %s\n", failure.message.c_str());
  }
  return exit_status(failure.code);
}

[[noreturn]] void leave_at_once() {
  constexpr std::string_view kLine = "quiver: interrupted\n";
  static_cast<void>(!::write(STDERR_FILENO, kLine.data(), kLine.size()));
  ::_exit(exit_status(Code::kCancelled));
}

// Ctrl-C ends what runs in an orderly way; a second one at once, and so does a long time without an
// end: a daemon or a disk that does not answer keeps nobody.
void wait_for_interrupt(const sigset_t& signals, std::stop_source& stop, std::stop_token ended) {
  const RealClock clock;
  std::optional<Instant> since;
  while (!ended.stop_requested()) {
    const timespec patience{0, 100'000'000};
    const bool signalled = sigtimedwait(&signals, nullptr, &patience) > 0;
    if (since && (signalled || clock.now() - *since > std::chrono::seconds(5))) leave_at_once();
    if (!signalled) continue;
    since = clock.now();
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

namespace quiver {
namespace {

constexpr const char* kAbout =
    "Quiver: a cache that knows what your training jobs need next.\n\n"
    "Jobs use it by themselves (import quiver_cache.torch); a daemon starts with the first of "
    "them\n"
    "and ends when idle. With these commands you look at it and prepare it.";
constexpr const char* kExamples =
    "Examples:\n"
    "  quiver digest s3://bucket/train   list what is there and take its hashes: the manifest\n"
    "  quiver warm s3://bucket/train     fill the cache before a job needs it\n"
    "  quiver status                     see what is cached and who reads it\n"
    "  quiver top                        see live how fast each job is, and why\n"
    "  quiver digest --help              more about one command\n";

// The commands with their options, as CLI11 parses them.
struct CommandLine {
  CommandLine() : app(kAbout) {
    app.name("quiver");
    app.require_subcommand(1);
    app.footer(kExamples);
    app.get_option("--help")->description("Print this help");
    add_dataset_commands();
    add_plan_command();
    add("status", "What is cached, who reads it, and how well", run_status,
        "  quiver status\n"
        "  quiver status --json | jq '.datasets[].jobs'\n"
        "It ends with 13 when no daemon runs, and with 20 when one runs but not as it should.\n");
    CLI::App* top = add(
        "top", "Every job live: how fast, what it waits for, and why",
        [this](const Command& c) { return run_top(c, once); },
        "  quiver top\n"
        "  quiver top --once\n"
        "  quiver top --json | jq -c '.jobs[] | {name, samples_per_s, why}'\n"
        "On a terminal it is shown anew each second until Ctrl-C; elsewhere once. With --json it "
        "is\n"
        "one object a second. The daemon stays while it is watched.\n");
    top->add_flag("--once", once, "Show it once");
    add("stop", "Stop the daemon; it starts again with the next job", run_stop,
        "  quiver stop\nWhat it has cached stays. Jobs that run start another one.\n");
    add("explain", "Every setting, its value, and where that came from", run_explain,
        "  quiver explain\n  QUIVER_DISK_LIMIT=200GB quiver explain\n");
    add("version", "The version of this program", run_version, "  quiver version\n");
  }

  CLI::App* add(const char* name, const char* help, Action its, const std::string& examples) {
    CLI::App* command = app.add_subcommand(name, help);
    command->add_flag("--json", json, "Print one JSON object, also for a failure");
    command->get_option("--help")->description("Print this help");
    command->callback([this, its = std::move(its)] { action = its; });
    command->footer("Examples:\n" + examples);
    return command;
  }

  void add_dataset_commands();
  void add_plan_command();
  static Result<int> run_version(const Command& command) {
    if (command.json) {
      print_json({{"version", cache::kSoftware}});
    } else {
      std::puts(cache::kSoftware);
    }
    return 0;
  }

  CLI::App app;
  bool json = false, all = false, verify = false, once = false;
  std::string target;
  DigestArguments digest;
  PlanArguments plan;
  Action action;
};

void CommandLine::add_dataset_commands() {
  CLI::App* make = add(
      "digest", "Make the manifest of what lies at an address, or renew it",
      [this](const Command& c) { return run_digest(c, digest); },
      "  quiver digest s3://bucket/train\n"
      "  quiver digest --layout files --manifest words.qvm /data/words\n"
      "  quiver digest --layout webdataset 's3://bucket/shards/train-{000..099}.tar'\n"
      "  quiver digest --fresh s3://bucket/train\n"
      "What has not changed since the last digest (by ETag, else by size and mtime) is not read\n"
      "again. What is read stays in the cache.\n");
  make->add_option("url", digest.url, "s3://bucket/prefix, https://…, or a directory")->required();
  make->add_option("--layout", digest.layout,
                   "image_folder (default: images in class folders), files, webdataset (tars)");
  make->add_option("--manifest", digest.manifest, "The file to write (default: in manifest_dir)");
  make->add_flag("--fresh", digest.fresh, "Read everything, also what has not changed");
  make->add_flag("--allow-empty", digest.allow_empty, "Allow class folders without images");
  CLI::App* warm = add(
      "warm", "Fill the cache with a dataset before a job needs it",
      [this](const Command& c) { return run_warm(c, target, verify); },
      "  quiver warm s3://bucket/train\n"
      "  quiver warm --verify words.qvm && sbatch train.sh\n"
      "It fills the dataset's share of the cache, and fails when something of that did not "
      "come.\n");
  warm->add_option("target", target, "An address that was digested, or a manifest (.qvm)")
      ->required();
  warm->add_flag("--verify", verify, "Fail unless all of it is here; reads it to be sure");
  CLI::App* evict = add(
      "evict", "Remove a dataset from the cache",
      [this](const Command& c) { return run_evict(c, target, all); },
      "  quiver evict s3://bucket/train\n"
      "  quiver evict 4f2a90c1              an id that 'quiver status' shows\n"
      "  quiver evict --all\n"
      "The manifest stays. If no daemon runs one is started for it: only a daemon removes.\n");
  evict->add_option("target", target, "An id of 'quiver status', an address, or a manifest (.qvm)");
  evict->add_flag("--all", all, "Remove everything");
}

void CommandLine::add_plan_command() {
  CLI::App* its = add(
      "plan", "How long epochs will take with a cache of some size",
      [this](const Command& c) { return run_plan(c, plan); },
      "  quiver plan --bytes 150GB --speed 400MB/s --link 100MB/s --cache 50GB --cache 100GB\n"
      "  quiver plan cluster.toml\n"
      "  quiver plan --running --cache 200GB --cache 500GB\n"
      "It divides the cache as the daemon does. Without a speed a job computes as fast as it is "
      "fed.\n");
  CLI::Option* file =
      its->add_option("file", plan.file, "Datasets, jobs, links and cache sizes, in TOML");
  CLI::Option* bytes = its->add_option("--bytes", plan.bytes, "Of one dataset: its size");
  CLI::Option* speed =
      its->add_option("--speed", plan.speed, "What each of its jobs reads when it never waits");
  CLI::Option* jobs = its->add_option("--jobs", plan.jobs, "How many jobs read it (default: 1)")
                          ->check(CLI::Range(1, 10000));
  CLI::Option* link = its->add_option("--link", plan.link, "What its origin gives");
  its->add_option("--cache", plan.caches, "The size of the cache; may be given several times");
  CLI::Option* running = its->add_flag(
      "--running", plan.running, "The jobs that run now, at the rates that are measured of them");
  for (CLI::Option* other : {file, bytes, speed, jobs, link}) running->excludes(other);
}

// An unknown command is most often a slip.
std::string wrong_usage(const CLI::ParseError& error, const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  const std::vector<std::string_view> names(commands.begin(), commands.end());
  if (argc == 1) return fmt::format("say what: {}; see quiver --help", fmt::join(names, ", "));
  const std::string_view first = argv[1];
  if (first.empty() || first.starts_with('-') || std::ranges::count(names, first) != 0) {
    const bool of_command = !first.empty() && !first.starts_with('-');
    return fmt::format("{}; see quiver {}--help", error.what(),
                       of_command ? std::string(first) + " " : "");
  }
  const std::string_view near = nearest_name(first, names);
  return fmt::format("there is no command '{}'{}; see quiver --help", first,
                     near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near));
}

}  // namespace

nlohmann::json error_json(const Error& failure) {
  return {{"code", std::string(name(failure.code))}, {"message", failure.message}};
}

}  // namespace quiver

int main(int argc, char** argv) {
  using namespace quiver;
  CommandLine line;
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::ParseError& failure) {
    if (failure.get_exit_code() == 0) return line.app.exit(failure);  // --help
    const bool json = std::any_of(argv, argv + argc, [](const char* argument) {
      return std::string_view(argument) == "--json";
    });
    return report(Error{Code::kInvalid, wrong_usage(failure, line.app, argc, argv)}, json);
  }
  return run(line.json, line.action);
}
