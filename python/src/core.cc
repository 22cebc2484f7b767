#include "core.h"

#include <pthread.h>

NB_MODULE(_core, m) {
  m.doc() = "The C++ core of quiver_cache. Private: use quiver_cache and quiver_cache.torch.";
  namespace py = quiver::py;
  py::bind_errors(m);
  py::bind_sample(m);
  py::bind_settings(m);
  py::bind_manifest(m);
  py::bind_sampler(m);
  py::bind_dataset(m);
  py::bind_digest(m);
  py::bind_batch(m);
  py::bind_feed(m);
  // What threads of the parent hold stays held in the child of a fork, for there they never end.
  pthread_atfork(nullptr, nullptr, [] { quiver::py::nb::set_leak_warnings(false); });
}
