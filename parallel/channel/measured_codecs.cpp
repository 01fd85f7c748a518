#include "parallel/channel/measured_codecs.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "compress/codec_setting_json.h"
#include "core/comm/text_exchange.h"
#include "core/joined_text.h"
#include "core/json_reader.h"

namespace slackline {

void MeasuredCodecs::add(const std::vector<CodecTimes>& codecs, std::map<Key, Sums>& table) {
  for (const CodecTimes& codec : codecs) {
    Sums& sums = table[{codec_setting_json(codec.setting), codec.shape, codec.sent_bytes}];
    sums.encode += codec.encode;
    sums.decode += codec.decode;
  }
}

std::map<MeasuredCodecs::Key, MeasuredCodecs::Means> MeasuredCodecs::slowest(
    const std::map<Key, Sums>& table, Communicator& world) {
  std::string own;
  for (const auto& [key, sums] : table) {
    own += fmt::format("{}\n{} {} {} {}\n",
                       key.codec,
                       key.sent_bytes,
                       sums.encode.mean(),
                       sums.decode.mean(),
                       joined(key.shape, " "));
  }
  std::map<Key, Means> slowest;
  for (const std::string& text : exchange_texts(world, own, "costs of codecs")) {
    std::istringstream lines(text);
    Key key;
    std::string numbers;
    while (std::getline(lines, key.codec) && std::getline(lines, numbers)) {
      std::istringstream fields(numbers);
      Means means;
      fields >> key.sent_bytes >> means.encode >> means.decode;
      key.shape.assign(std::istream_iterator<std::int64_t>(fields), {});
      Means& longest = slowest[key];
      longest.encode = std::max(longest.encode, means.encode);
      longest.decode = std::max(longest.decode, means.decode);
    }
  }
  return slowest;
}

// Times in steps replace those beside them, for a codec as a whole, whatever the shapes.
std::vector<CodecCost> MeasuredCodecs::costs(Communicator& world) const {
  std::map<Key, Means> all = slowest(in_steps_, world);
  std::set<std::string> used;
  for (const auto& [key, means] : all) {
    used.insert(key.codec);
  }
  for (const auto& [key, means] : slowest(beside_steps_, world)) {
    if (!used.contains(key.codec)) {
      all.emplace(key, means);
    }
  }
  std::vector<CodecCost> costs;
  for (const auto& [key, means] : all) {
    JsonReader setting = JsonReader::parse(key.codec, "a codec that another rank measured");
    costs.push_back({.codec = read_codec_setting(setting),
                     .shape = key.shape,
                     .dtype = std::string(name_of(DType::f32)),
                     .encode = {means.encode},
                     .decode = {means.decode},
                     .sent_bytes = key.sent_bytes});
  }
  return costs;
}

}  // namespace slackline
