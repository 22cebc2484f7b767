#include "io/http.h"

namespace quiver::io {

std::string_view HttpResponse::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_case_name) return value;
  }
  return {};
}

}  // namespace quiver::io
