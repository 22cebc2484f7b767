#include <nanobind/stl/map.h>

#include <cmath>
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
  nb::class_<PyCredentials>(m, "Credentials", "Of an origin; in memory only.")
      .def(
          "__init__",
          [](PyCredentials* self, std::string key, std::string secret, std::string token) {
            new (self) PyCredentials{OwnedHere(std::make_shared<cache::RenewableCredentials>(
                Credentials{std::move(key), std::move(secret), std::move(token)}))};
          },
          nb::arg("access_key") = "", nb::arg("secret_key") = "", nb::arg("session_token") = "")
      .def(
          "renewed_by_somebody",
          [](const PyCredentials& self, bool is) { (*self.handle)->renewed_by_somebody(is); },
          nb::arg("is_"), "Whether somebody waits in wanted(), and answers by renew().")
      .def(
          "wanted",
          [](const PyCredentials& self, double seconds) {
            nb::gil_scoped_release release;
            return (*self.handle)->wanted(std::chrono::milliseconds(std::llround(seconds * 1e3)));
          },
          nb::arg("seconds"), "Waits until they were refused as expired: True.")
      .def(
          "renew",
          [](const PyCredentials& self, std::string key, std::string secret, std::string token) {
            nb::gil_scoped_release release;
            (*self.handle)->renew({std::move(key), std::move(secret), std::move(token)});
          },
          nb::arg("access_key"), nb::arg("secret_key"), nb::arg("session_token"));
}

}  // namespace quiver::py
