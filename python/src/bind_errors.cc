#include <array>

#include "core.h"

namespace quiver::py {
namespace {

// docs/errors.md has the same table, with the exit statuses.
constexpr std::pair<Code, const char*> kClasses[] = {
    {Code::kInvalid, "InvalidError"},     {Code::kNotFound, "NotFoundError"},
    {Code::kDenied, "DeniedError"},       {Code::kExpired, "ExpiredError"},
    {Code::kThrottled, "ThrottledError"}, {Code::kUnreachable, "UnreachableError"},
    {Code::kTimeout, "DeadlineError"},    {Code::kChanged, "ChangedError"},
    {Code::kShort, "ShortReadError"},     {Code::kCorrupt, "CorruptError"},
    {Code::kNoSpace, "NoSpaceError"},     {Code::kUnavailable, "DaemonUnavailableError"},
    {Code::kVersion, "VersionError"},     {Code::kCancelled, "CancelledError"},
    {Code::kIo, "StorageIOError"},
};

std::array<PyObject*, std::size(kClasses)> classes{};  // filled once, when the module is made

}  // namespace

nb::handle exception_class(Code code) {
  for (std::size_t i = 0; i < std::size(kClasses); ++i) {
    if (kClasses[i].first == code) return classes[i];
  }
  return classes.back();
}

void raise(const Error& error) {
  PyErr_SetString(exception_class(error.code).ptr(), error.message.c_str());
  nb::raise_python_error();
}

void bind_errors(nb::module_&) {
  nb::module_ errors = nb::module_::import_("quiver_cache.errors");
  for (std::size_t i = 0; i < std::size(kClasses); ++i) {
    classes[i] = nb::object(errors.attr(kClasses[i].second)).release().ptr();
  }
}

World::World() : http(io::make_curl_transport(32)) {}

DatasetHandle::~DatasetHandle() {
  if (!dataset) return;
  nb::gil_scoped_release release;
  dataset.reset();
  world.reset();
}

}  // namespace quiver::py
