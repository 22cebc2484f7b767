#include "cache/origin/s3_address.h"

#include <algorithm>

#include "cache/origin/text.h"

namespace quiver::cache {
namespace {

bool is_address(std::string_view host) {
  return host.starts_with('[') || host.find_first_not_of("0123456789.") == host.npos;
}

bool bucket_can_be_host(std::string_view host_and_port, std::string_view bucket) {
  const std::string_view host = host_and_port.substr(0, host_and_port.rfind(':'));
  const bool has_port = host.size() != host_and_port.size();
  return !is_address(host) && host != "localhost" && !has_port &&
         std::none_of(bucket.begin(), bucket.end(),
                      [](char c) { return c == '.' || c == '_' || (c >= 'A' && c <= 'Z'); });
}

// "http://host:9000/path" -> "host"; "[::1]" keeps its brackets.
std::string_view host_of(std::string_view endpoint) {
  const auto scheme = endpoint.find("://");
  if (scheme != endpoint.npos) endpoint.remove_prefix(scheme + 3);
  endpoint = endpoint.substr(0, endpoint.find('/'));
  const auto from = endpoint.starts_with('[') ? endpoint.find(']') : 0;
  return endpoint.substr(0, endpoint.find(':', std::min(from, endpoint.size())));
}

bool below(std::string_view host, std::string_view parent) {
  if (host == parent) return true;
  return !is_address(parent) && host.ends_with(parent) &&
         host[host.size() - parent.size() - 1] == '.';
}

}  // namespace

bool of_same_store(std::string_view endpoint, std::string_view host) {
  constexpr std::string_view kAws[] = {"amazonaws.com", "amazonaws.com.cn"};
  const std::string_view own = host_of(endpoint);
  for (const std::string_view aws : kAws) {
    if ((own.empty() || below(own, aws)) && below(host, aws)) return true;
  }
  return !own.empty() && below(host, own);
}

Result<S3Place> parse_s3_url(std::string_view url) {
  std::string_view rest = url.substr(std::string_view("s3://").size());
  S3Place place;
  place.bucket = rest.substr(0, rest.find('/'));
  if (place.bucket.empty()) {
    return error(Code::kInvalid, "{} names no bucket; write s3://bucket/prefix",
                 without_credentials(url));
  }
  const bool valid = std::all_of(place.bucket.begin(), place.bucket.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
  });
  if (!valid) {
    return error(Code::kInvalid, "{}: this is no name of a bucket; write s3://bucket/prefix",
                 without_credentials(url));
  }
  rest.remove_prefix(place.bucket.size());
  if (!rest.empty()) rest.remove_prefix(1);
  place.prefix = rest;
  if (!rest.empty() && !rest.ends_with('/')) place.prefix += '/';
  return place;
}

Result<S3Address> S3Address::make(std::string_view endpoint, std::string_view region,
                                  std::string_view bucket, std::string_view addressing) {
  std::string aws;
  if (endpoint.empty()) {
    aws = fmt::format("https://s3.{}.amazonaws.com", region);
    if (region.starts_with("cn-")) aws += ".cn";
    endpoint = aws;
  }
  while (endpoint.ends_with('/')) endpoint.remove_suffix(1);
  const auto scheme_end = endpoint.find("://");
  const auto scheme = endpoint.substr(0, scheme_end);
  if (scheme_end == endpoint.npos || (scheme != "http" && scheme != "https")) {
    return error(Code::kInvalid, "the endpoint \"{}\" is not http(s)://host[:port]", endpoint);
  }
  const auto host = endpoint.substr(scheme_end + 3);
  if (host.empty() || host.find_first_of("@?#") != host.npos) {
    return error(Code::kInvalid, "the endpoint \"{}\" is not http(s)://host[:port]",
                 endpoint.substr(0, scheme_end + 3));
  }
  S3Address address;
  const bool has_path = host.find('/') != host.npos;
  const bool virtual_host = addressing == "virtual" ||
                            (addressing == "auto" && !has_path && bucket_can_be_host(host, bucket));
  if (addressing != "auto" && addressing != "virtual" && addressing != "path") {
    return error(Code::kInvalid, "addressing \"{}\" is not auto, path or virtual", addressing);
  }
  address.base_ = virtual_host ? fmt::format("{}://{}.{}/", scheme, bucket, host)
                               : fmt::format("{}://{}/{}/", scheme, host, bucket);
  return address;
}

std::string S3Address::object(std::string_view whole_key) const {
  return base_ + encode_path(whole_key);
}

std::string S3Address::listing(std::string_view encoded_query) const {
  return base_ + "?" + std::string(encoded_query);
}

}  // namespace quiver::cache
