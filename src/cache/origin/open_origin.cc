// From a URL to the origin that can read it.
#include "cache/origin/directory_origin.h"
#include "cache/origin/http_origin.h"
#include "cache/origin/origin.h"
#include "cache/origin/s3_origin.h"
#include "cache/origin/text.h"

namespace quiver::cache {
namespace {

// "file:///some/path" → "/some/path".
Result<std::string> path_of_file_url(std::string_view url) {
  std::string_view rest = url.substr(std::string_view("file://").size());
  if (rest.starts_with("localhost/")) rest.remove_prefix(std::string_view("localhost").size());
  if (!rest.starts_with('/')) {
    return error(Code::kInvalid, "{} names a host; write file:///path", url);
  }
  auto path = decode_percent(rest);
  if (!path || path->find('\0') != path->npos) {
    return error(Code::kInvalid, "{} is not a well-formed file URL", url);
  }
  return *std::move(path);
}

}  // namespace

Result<std::unique_ptr<Origin>> open_origin(const OriginSettings& given, OriginContext context) {
  OriginSettings settings = given;
  const std::string& url = settings.url = with_plain_scheme(std::move(settings.url));
  if (url.starts_with("s3://")) return make_s3_origin(settings, context);
  if (url.starts_with("http://") || url.starts_with("https://")) {
    return make_http_origin(settings, context);
  }
  if (url.starts_with("file://")) {
    auto path = TRY(path_of_file_url(url));
    return make_directory_origin(settings, std::move(path), context);
  }
  if (url.find("://") != url.npos) {
    return error(Code::kInvalid, "{}: only s3://, http://, https://, file:// and paths can be read",
                 without_credentials(url));
  }
  return make_directory_origin(settings, url, context);
}

}  // namespace quiver::cache
