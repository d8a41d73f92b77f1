// The fragments of a model.

#include "layers.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include "../door.hpp"

namespace penstock::torch {
namespace {

bool is_number(std::string_view part) {
  return !part.empty() &&
         std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void check_enough(const std::vector<std::string>& layers, std::size_t fragments) {
  if (layers.size() >= fragments) return;
  std::string first;
  for (std::size_t i = 0; i < layers.size() && i < 4; ++i) first += (i > 0 ? ", " : "") + layers[i];
  const std::string count = std::to_string(layers.size());
  refuse_argument(
      "fragments is " + std::to_string(fragments) + ", and the optimizer's parameters form " +
      count + " layer" + (layers.size() == 1 ? "" : "s") + " (" + first +
      "), expected a layer or more for each fragment: lower fragments to " + count + " or less");
}

}  // namespace

std::string layer_of(const std::string& name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    if (is_number(std::string_view(name).substr(begin, end - begin))) return name.substr(0, end);
    begin = end + 1;
  }
  const std::size_t last = name.rfind('.');
  return last == std::string::npos || last == 0 ? name : name.substr(0, last);
}

std::vector<std::vector<std::size_t>> fragments_of(const std::vector<std::string>& names,
                                                   std::size_t fragments) {
  std::map<std::string, std::size_t> numbers;
  std::vector<std::string> layers;
  std::vector<std::vector<std::size_t>> parts(std::min(fragments, names.size()));
  for (std::size_t place = 0; place < names.size(); ++place) {
    const std::string layer = layer_of(names[place]);
    const auto [found, is_new] = numbers.emplace(layer, layers.size());
    if (is_new) layers.push_back(layer);
    parts[found->second % parts.size()].push_back(place);
  }
  check_enough(layers, fragments);
  return parts;
}

}  // namespace penstock::torch
