// What the binding files share: errors become exceptions in one place, blocking calls run without
// the GIL, and objects with threads or descriptors are never destroyed in a forked child.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cache/client/dataset.h"
#include "io/file.h"
#include "io/http.h"

namespace quiver::py {

namespace nb = nanobind;

// Raises the class of quiver_cache.errors that belongs to the code. The caller holds the GIL.
[[noreturn]] void raise(const Error& error);
// That class, as a borrowed handle.
nb::handle exception_class(Code code);

template <class T>
T unwrap(Result<T>&& result) {
  if (!result) raise(result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

// f() without the GIL; its Error is raised with it.
template <class F>
auto blocking(F&& f) {
  auto result = [&] {
    nb::gil_scoped_release release;
    return f();
  }();
  return unwrap(std::move(result));
}

// The process's ways to the outside. Owned by each Dataset; lives until the last user of it is
// gone.
struct World {
  io::RealFiles files;
  std::unique_ptr<io::HttpTransport> http;
  RealClock clock;
  StderrLog log{LogLevel::kWarning};

  World();
  cache::Environment environment() { return {files, *http, clock, log}; }
};

// Owns a T that has threads, locks or connections. In a child that was forked these exist in name
// only: there the T is left alone (the memory is the child's to lose), never destroyed.
template <class T>
class OwnedHere {
 public:
  explicit OwnedHere(T value) : value_(std::make_unique<T>(std::move(value))), pid_(getpid()) {}
  OwnedHere(OwnedHere&&) noexcept = default;
  ~OwnedHere() {
    if (value_ && getpid() != pid_) static_cast<void>(value_.release());
  }
  T& operator*() const { return *value_; }
  T* operator->() const { return value_.get(); }

 private:
  std::unique_ptr<T> value_;
  pid_t pid_;
};

// What Python holds as `Dataset`: the client's and the world that it refers to.
struct DatasetHandle {
  std::shared_ptr<World> world;
  std::shared_ptr<cache::Dataset> dataset;

  ~DatasetHandle();  // waits for threads of the client: without the GIL
  DatasetHandle(std::shared_ptr<World> w, std::shared_ptr<cache::Dataset> d)
      : world(std::move(w)), dataset(std::move(d)) {}
  DatasetHandle(DatasetHandle&&) noexcept = default;
};
struct PyDataset {
  OwnedHere<DatasetHandle> handle;
};

void bind_errors(nb::module_& m);
void bind_manifest(nb::module_& m);
void bind_settings(nb::module_& m);
void bind_sample(nb::module_& m);
void bind_dataset(nb::module_& m);
void bind_digest(nb::module_& m);
void bind_batch(nb::module_& m);
void bind_feed(nb::module_& m);
void bind_sampler(nb::module_& m);

}  // namespace quiver::py
