#include <nanobind/stl/map.h>

#include <map>

#include "settings_of.h"

namespace quiver::py {

void bind_settings(nb::module_& m) {
  nb::class_<Settings>(m, "Settings", "All settings, with where each came from.")
      .def_static(
          "load",
          [](const std::map<std::string, std::string>& a) {
            io::RealFiles files;
            return unwrap(cache::user_settings(a, files));
          },
          nb::arg("arguments") = std::map<std::string, std::string>{},
          "Argument > environment (QUIVER_...) > file > default.")
      .def_ro("enabled", &Settings::enabled)
      .def_prop_ro("digest_lazily", [](const Settings& s) { return s.digest == DigestWhen::kLazy; })
      .def_prop_ro("memory_limit", [](const Settings& s) { return s.memory_limit.value; })
      .def("explain", &explain);
  nb::class_<Credentials>(m, "Credentials", "Of an origin; in memory only.")
      .def(
          "__init__",
          [](Credentials* self, std::string key, std::string secret, std::string token) {
            new (self) Credentials{std::move(key), std::move(secret), std::move(token)};
          },
          nb::arg("access_key") = "", nb::arg("secret_key") = "", nb::arg("session_token") = "");
}

}  // namespace quiver::py
