#include "compress/compress_config.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compress/codec_setting_json.h"
#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/refusal.h"

namespace slackline {

namespace {

using Catch::Contains;
using testing::Mismatch;

CompressConfig read(const std::string& section) {
  return read_compress_config(
      JsonReader::parse(R"({"compress": )" + section + "}", "run.json").section("compress"));
}

CodecSetting read_setting(const std::string& text) {
  JsonReader section = JsonReader::parse(text, "setting");
  const CodecSetting setting = read_codec_setting(section);
  section.finish();
  return setting;
}

std::string refusal(const std::string& section) {
  return testing::refusal_of<ConfigError>([&] { return read(section); });
}

// Returns the refusal of a setting in the place of a site's.
std::string setting_refusal(const std::string& setting) {
  return refusal(R"({"data_gradient": )" + setting + "}");
}

// Empty where the message begins with the key's path and has the rule.
Mismatch unlike(const std::string& message, const std::string& key, const std::string& rule) {
  const bool names_key = message.starts_with("compress." + key);
  return names_key && message.find(rule) != std::string::npos ? Mismatch{} : Mismatch{message};
}

struct Written {
  CodecSetting setting{};
  std::string text;
};

// Every kind, with defaults and with everything else.
const std::vector<Written> kWritten = {
    {{.kind = CodecKind::low_rank, .rank = 16}, R"({"codec": "low_rank", "rank": 16})"},
    {{.kind = CodecKind::low_rank,
      .error_feedback = ErrorFeedback::lazy,
      .always = true,
      .rank = 4,
      .factors = DType::bf16,
      .orthogonalization = Orthogonalization::gram_schmidt},
     R"({"codec": "low_rank", "rank": 4, "factors": "bf16", "orthogonalization": "gram_schmidt", )"
     R"("error_feedback": "lazy", "always": true})"},
    {{.kind = CodecKind::top_k, .ratio = 0.1}, R"({"codec": "top_k", "ratio": 0.1})"},
    {{.kind = CodecKind::top_k,
      .error_feedback = ErrorFeedback::immediate,
      .ratio = 1.0,
      .values = DType::bf16},
     R"({"codec": "top_k", "ratio": 1, "values": "bf16", "error_feedback": "immediate"})"},
    {{.kind = CodecKind::random_k, .ratio = 1e-7}, R"({"codec": "random_k", "ratio": 1e-07})"},
    {{.kind = CodecKind::quantize, .bits = 8}, R"({"codec": "quantize", "bits": 8})"},
    {{.kind = CodecKind::quantize, .bits = 4, .scale = ScaleOf::token},
     R"({"codec": "quantize", "bits": 4, "scale": "token"})"},
    {{.kind = CodecKind::quantize,
      .bits = 2,
      .scale = ScaleOf::group,
      .group = 64,
      .rounding = Rounding::stochastic},
     R"({"codec": "quantize", "bits": 2, "scale": "group", "group": 64, )"
     R"("rounding": "stochastic"})"},
    {{.kind = CodecKind::quantize, .bits = 2, .scale = ScaleOf::tensor},
     R"({"codec": "quantize", "bits": 2, "scale": "tensor"})"},
    {{.kind = CodecKind::quantize, .bits = 2, .scale = ScaleOf::both, .units = Units::moments},
     R"({"codec": "quantize", "bits": 2, "scale": "both", "units": "moments"})"},
    {{.kind = CodecKind::cast}, R"({"codec": "cast"})"},
    {{.kind = CodecKind::cast, .error_feedback = ErrorFeedback::immediate, .always = true},
     R"({"codec": "cast", "error_feedback": "immediate", "always": true})"},
};

std::map<std::string, double> all_sites(double bound) {
  std::map<std::string, double> bounds = critical_path_max_errors();
  for (auto& [site, of_site] : bounds) {
    of_site = bound;
  }
  return bounds;
}

}  // namespace

TEST_CASE("a codec setting is written without its defaults, and read back as it was") {
  for (const Written& written : kWritten) {
    INFO(written.text);
    CHECK(codec_setting_json(written.setting) == written.text);
    CHECK(read_setting(written.text) == written.setting);
  }
}

TEST_CASE("defaults may be spelled out in a codec setting") {
  CHECK(read_setting(R"({"codec": "low_rank", "rank": 2, "factors": "fp32",
                         "orthogonalization": "blocked", "error_feedback": "none",
                         "always": false})") ==
        CodecSetting{.kind = CodecKind::low_rank, .rank = 2});
  CHECK(read_setting(R"({"codec": "quantize", "bits": 4, "scale": "channel",
                         "rounding": "nearest"})") ==
        CodecSetting{.kind = CodecKind::quantize, .bits = 4});
  CHECK(read_setting(R"({"codec": "quantize", "bits": 4, "scale": "group"})").group == 128);
}

TEST_CASE("a setting's short text names codec and strength") {
  CHECK(short_text(kWritten[0].setting) == "low_rank 16");
  CHECK(short_text(kWritten[2].setting) == "top_k 0.1");
  CHECK(short_text(kWritten[5].setting) == "quantize 8");
  CHECK(short_text(kWritten[10].setting) == "cast");
}

TEST_CASE("an unknown codec is refused with the known ones") {
  const std::string message = setting_refusal(R"({"codec": "lowrank", "rank": 2})");
  for (const char* known : {"low_rank", "top_k", "random_k", "quantize", "cast", "lowrank"}) {
    CHECK(unlike(message, "data_gradient.codec", known) == "");
  }
  CHECK(unlike(setting_refusal("{}"), "data_gradient.codec", "") == "");
}

TEST_CASE("a codec's strength is required and in range") {
  struct Strength {
    std::string given;
    std::string rule;
  };

  const auto check =
      [](const std::string& codec, const std::string& key, const std::vector<Strength>& strengths) {
        for (const auto& [given, rule] : strengths) {
          const std::string member = given.empty() ? "" : fmt::format(R"(, "{}": {})", key, given);
          CHECK(setting_refusal(fmt::format(R"({{"codec": "{}"{}}})", codec, member)) ==
                fmt::format("compress.data_gradient.{}: {}", key, rule));
        }
      };
  const std::string missing = "required key is missing";
  check("low_rank",
        "rank",
        {{"", missing},
         {"0", "must be at least 1; got 0"},
         {"-1", "must be at least 1; got -1"},
         {"65537", "must be at most 65536; got 65537"},
         {"1.5", "expected an integer; got 1.5"}});
  for (const char* codec : {"top_k", "random_k"}) {
    check(codec,
          "ratio",
          {{"", missing},
           {"0", "must be greater than 0; got 0"},
           {"-1", "must be greater than 0; got -1"},
           {"1.01", "must be at most 1; got 1.01"}});
  }
  check("quantize",
        "bits",
        {{"", missing},
         {"1", "must be at least 2; got 1"},
         {"5", "must be 2, 3, 4 or 8; got 5"},
         {"16", "must be at most 8; got 16"}});
  const std::string group = R"({"codec": "quantize", "bits": 4, "scale": "group", "group": )";
  CHECK(setting_refusal(group + "7}") == "compress.data_gradient.group: must be at least 8; got 7");
  CHECK(setting_refusal(group + "1048577}") ==
        "compress.data_gradient.group: must be at most 1048576; got 1048577");
  CHECK(read_setting(group + "8}").group == 8);
  CHECK(read_setting(R"({"codec": "low_rank", "rank": 65536})").rank == 65536);
  CHECK(read_setting(R"({"codec": "top_k", "ratio": 1})").ratio == 1.0);
}

TEST_CASE("keys of other codecs are unknown keys") {
  const std::vector<std::string> cases[] = {
      {R"({"codec": "low_rank", "rank": 2, "ratio": 0.1})", "ratio"},
      {R"({"codec": "low_rank", "rank": 2, "bits": 4})", "bits"},
      {R"({"codec": "top_k", "ratio": 0.1, "rank": 2})", "rank"},
      {R"({"codec": "random_k", "ratio": 0.1, "factors": "bf16"})", "factors"},
      {R"({"codec": "quantize", "bits": 4, "values": "bf16"})", "values"},
      {R"({"codec": "quantize", "bits": 4, "group": 64})", "group"},
      {R"({"codec": "cast", "rounding": "nearest"})", "rounding"},
  };
  for (const std::vector<std::string>& other : cases) {
    CHECK(unlike(setting_refusal(other[0]), "data_gradient." + other[1], "nknown key") == "");
  }
}

TEST_CASE("unknown choices of a codec are refused with the known ones") {
  CHECK(unlike(setting_refusal(R"({"codec": "low_rank", "rank": 2, "factors": "fp16"})"),
               "data_gradient.factors",
               "bf16") == "");
  CHECK(unlike(setting_refusal(R"({"codec": "low_rank", "rank": 2, "orthogonalization": "qr"})"),
               "data_gradient.orthogonalization",
               "gram_schmidt") == "");
  CHECK(unlike(setting_refusal(R"({"codec": "cast", "error_feedback": "eager"})"),
               "data_gradient.error_feedback",
               "immediate") == "");
  CHECK(unlike(setting_refusal(R"({"codec": "quantize", "bits": 4, "scale": "row"})"),
               "data_gradient.scale",
               "token") == "");
  CHECK(unlike(setting_refusal(R"({"codec": "quantize", "bits": 4, "rounding": "up"})"),
               "data_gradient.rounding",
               "stochastic") == "");
  CHECK(unlike(setting_refusal(R"({"codec": "cast", "always": 1})"),
               "data_gradient.always",
               "true or false") == "");
}

TEST_CASE("an empty compress section compresses nothing") {
  const CompressConfig config = read("{}");
  CHECK(config.policy == CompressionPolicy::none);
  CHECK(config.sites.empty());
  CHECK(config.warmup_steps == 0);
  CHECK(config.classes.empty());
  CHECK(config.epilogue_only);
  CHECK_FALSE(config.stages);
  CHECK(config.plan.empty());
  CHECK(config.guard.every == 100);
  CHECK(config.guard.max_error.empty());
}

TEST_CASE("a guard's keys are read, and refused where they make no sense") {
  const CompressConfig config = read(R"({"guard": {"every": 7, "max_error": 0.25}})");
  CHECK(config.guard.every == 7);
  CHECK(config.guard.max_error == all_sites(0.25));
  CHECK(read(R"({"guard": {"max_error": {"embedding": 2}}})").guard.max_error ==
        std::map<std::string, double>{{"embedding", 2.0}});
  CHECK(read(R"({"guard": {"every": 0}})").guard.every == 0);
  CHECK(unlike(refusal(R"({"guard": {"every": -1}})"), "guard.every", "-1") == "");
  CHECK(unlike(refusal(R"({"guard": {"every": 1.5}})"), "guard.every", "1.5") == "");
  CHECK(unlike(refusal(R"({"guard": {"max_error": 0}})"), "guard.max_error", "got 0") == "");
  CHECK(unlike(refusal(R"({"guard": {"max_error": "low"}})"), "guard.max_error", "low") == "");
  CHECK(unlike(refusal(R"({"guard": {"max_error": {"embedding": 0}}})"),
               "guard.max_error.embedding",
               "got 0") == "");
  CHECK(unlike(refusal(R"({"guard": {"max_error": {"embeddings": 1}}})"),
               "guard.max_error.embeddings",
               "nknown key") == "");
  CHECK(unlike(refusal(R"({"guard": {"every": 0, "max_error": 1}})"),
               "guard.max_error",
               "needs sampled steps") == "");
  CHECK(unlike(refusal(R"({"guard": {"maximum": 1}})"), "guard.maximum", "nknown key") == "");
}

TEST_CASE("under critical_path a guard judges unless a null turns it off") {
  const auto max_error = [](const std::string& rest) {
    return read(R"({"policy": "critical_path")" + rest + "}").guard.max_error;
  };
  const std::map<std::string, double>& defaults = critical_path_max_errors();
  CHECK(defaults.size() == 4);
  CHECK(max_error("") == defaults);
  CHECK(max_error(R"(, "guard": {"every": 7})") == defaults);
  CHECK(max_error(R"(, "guard": {"max_error": 0.3})") == all_sites(0.3));
  std::map<std::string, double> one = defaults;
  one["data_gradient"] = 3.0;
  CHECK(max_error(R"(, "guard": {"max_error": {"data_gradient": 3}})") == one);
  CHECK(max_error(R"(, "guard": {"max_error": null})").empty());
  CHECK(max_error(R"(, "guard": null)").empty());
  CHECK(max_error(R"(, "guard": {"every": 0})").empty());
  std::map<std::string, double> others = defaults;
  others.erase("embedding");
  CHECK(max_error(R"(, "guard": {"max_error": {"embedding": null}})") == others);
  for (const char* policy : {"none", "optimus_cc"}) {
    CHECK(read(fmt::format(R"({{"policy": "{}"}})", policy)).guard.max_error.empty());
  }
}

TEST_CASE("the resolved config keeps a guard that is on, off, or left to the policy") {
  const auto resolved = [](const std::string& section) {
    const JsonReader document = JsonReader::parse(R"({"compress": )" + section + "}", "run.json");
    static_cast<void>(read_compress_config(JsonReader(document).section("compress")));
    return document.resolved();
  };
  CHECK_THAT(resolved(R"({"policy": "critical_path"})"),
             Contains("\"max_error\": {") && Contains("\"embedding\": "));
  CHECK_THAT(resolved(R"({"policy": "critical_path", "guard": {"max_error": 0.3}})"),
             Contains("\"max_error\": 0.3"));
  CHECK_THAT(resolved(R"({"policy": "critical_path", "guard": {"max_error": null}})"),
             Contains("\"max_error\": null"));
  CHECK_THAT(resolved(R"({"policy": "critical_path", "guard": null})"),
             Contains("\"max_error\": null"));
  CHECK_THAT(resolved(R"({"policy": "none"})"), !Contains("max_error"));
}

TEST_CASE("every key of the compress section is read") {
  const CompressConfig config =
      read(R"({"policy": "list", "warmup_steps": 7, "epilogue_only": false, "stages": 2,
               "plan": "runs/x/plan.json",
               "pipeline_backward": {"codec": "low_rank", "rank": 16, "error_feedback": "lazy",
                                     "candidates": [{"codec": "cast"}]},
               "data_gradient": {"codec": "cast"},
               "classes": [{"site": "pipeline_backward", "stage": 1, "phase": "cooldown"},
                           {"site": "embedding", "codec": {"codec": "top_k", "ratio": 0.1}}]})");
  CHECK(config.policy == CompressionPolicy::list);
  CHECK(config.warmup_steps == 7);
  CHECK_FALSE(config.epilogue_only);
  CHECK(config.stages == 2);
  CHECK(config.plan == "runs/x/plan.json");
  REQUIRE(config.sites.size() == 2);
  CHECK(config.sites.at("pipeline_backward") ==
        CodecSetting{.error_feedback = ErrorFeedback::lazy, .rank = 16});
  REQUIRE(config.classes.size() == 2);
  CHECK(config.classes[0].site == "pipeline_backward");
  CHECK(config.classes[0].stage == 1);
  CHECK(config.classes[0].phase == "cooldown");
  CHECK_FALSE(config.classes[0].codec);
  CHECK_FALSE(config.classes[1].stage);
  CHECK_FALSE(config.classes[1].phase);
  CHECK(config.classes[1].codec == CodecSetting{.kind = CodecKind::top_k, .ratio = 0.1});
}

TEST_CASE("sites are checked under every policy, and unknown or reserved ones refused") {
  CHECK(unlike(refusal(R"({"policy": "none", "embedding": {"codec": "low_rank"}})"),
               "embedding.rank",
               "") == "");
  CHECK(unlike(refusal(R"({"data_gradients": {"codec": "cast"}})"),
               "data_gradients",
               "data_gradient") == "");
  CHECK(unlike(refusal(R"({"data_gradient": {"codec": "cast", "candidates": [{"codec": "x"}]}})"),
               "data_gradient.candidates.0.codec",
               "quantize") == "");
  for (const char* planned : {R"("tensor_forward": {"codec": "cast"})",
                              R"("tensor_backward": {"codec": "cast"})",
                              R"("pipeline_forward": {"codec": "autoencoder", "size": 8})",
                              R"("pipeline_forward": {"codec": "cast", "error_feedback": "ef21"})",
                              R"("pipeline_forward": {"codec": "cast", "from_layer": 2})",
                              R"("guard": {"budget": 0.1})"}) {
    INFO(planned);
    CHECK_THAT(refusal("{" + std::string(planned) + "}"), Contains("not built yet"));
  }
  CHECK(read(R"({"guard": {"budget": null}})").guard.every == 100);
}

TEST_CASE("sums of integers may be made in two shots, where there are sums") {
  const char* const kIntegers = R"({"codec": "quantize", "bits": 4, "sum": "two_shot"})";
  const auto site = [&](const std::string& name) {
    return "{\"" + name + "\": " + kIntegers + "}";
  };
  for (const std::string name : {"data_gradient", "embedding"}) {
    const CodecSetting setting = read(site(name)).sites.at(name);
    CHECK(setting.sum == SumWay::two_shot);
    CHECK(codec_setting_json(setting) == kIntegers);
    CHECK(short_text(setting) == "quantize 4 two_shot");
    CHECK(setting_of_calls(setting).sum == SumWay::gather);
  }
  CHECK(read(R"({"data_gradient": {"codec": "cast", "sum": "gather"}})")
            .sites.at("data_gradient")
            .sum == SumWay::gather);
  for (const std::string name :
       {"pipeline_forward", "pipeline_backward", "parameter_gather", "outer"}) {
    INFO(name);
    CHECK(unlike(refusal(site(name)), name + ".sum", "leave it out") == "");
  }
  CHECK(unlike(refusal(std::string(R"({"policy": "list", "classes": [{"site": )") +
                       R"("pipeline_forward", "codec": )" + kIntegers + "}]}"),
               "classes.0.codec.sum",
               "leave it out") == "");
  CHECK(unlike(refusal(std::string(R"({"pipeline_forward": {"candidates": [)") + kIntegers + "]}}"),
               "pipeline_forward.candidates.0.sum",
               "leave it out") == "");
  CHECK(unlike(refusal(R"({"data_gradient": {"codec": "top_k", "ratio": 0.1, "sum": "two_shot"}})"),
               "data_gradient.sum",
               "\"gather\"") == "");
  CHECK(unlike(refusal(R"({"data_gradient": {"codec": "quantize", "bits": 4, "units": "moments",
                           "sum": "two_shot"}})"),
               "data_gradient.sum",
               "units of moments") == "");
}

TEST_CASE("rounds take every codec, owe what it leaves out, and scale rows") {
  const CompressConfig config =
      read(R"({"policy": "all", "outer": {"codec": "quantize", "bits": 2}})");
  REQUIRE(config.codec_of_rounds());
  CHECK(config.codec_of_rounds()->scale == ScaleOf::group);
  CHECK(config.codec_of_rounds()->error_feedback == ErrorFeedback::immediate);
  CHECK_FALSE(read(R"({"outer": {"codec": "cast"}})").codec_of_rounds());  // policy none
  CHECK(read(R"({"policy": "all",
                 "outer": {"codec": "top_k", "ratio": 0.1, "error_feedback": "none"}})")
            .codec_of_rounds()
            ->error_feedback == ErrorFeedback::none);
  CHECK(unlike(refusal(R"({"outer": {"codec": "quantize", "bits": 2, "scale": "channel"}})"),
               "outer.scale",
               "\"group\"") == "");
  CHECK(unlike(refusal(R"({"outer": {"codec": "quantize", "bits": 2, "units": "moments"}})"),
               "outer.units",
               "\"values\"") == "");
}

TEST_CASE("weights take codecs that leave nothing out, with scales of a row") {
  const CompressConfig config =
      read(R"({"policy": "all", "parameter_gather": {"codec": "quantize", "bits": 8}})");
  CHECK(config.sites.at("parameter_gather") ==
        CodecSetting{.kind = CodecKind::quantize, .bits = 8, .scale = ScaleOf::group});
  const auto of_gather = [](const std::string& keys, const std::string& policy = "all") {
    return refusal(R"({"policy": ")" + policy + R"(", "parameter_gather": {)" + keys + "}}");
  };
  CHECK(unlike(of_gather(R"("codec": "top_k", "ratio": 0.1)"),
               "parameter_gather.codec",
               "quantize") == "");
  CHECK(unlike(of_gather(R"("codec": "cast", "error_feedback": "immediate")"),
               "parameter_gather.error_feedback",
               "nothing is owed") == "");
  CHECK(unlike(of_gather(R"("codec": "quantize", "bits": 8, "scale": "channel")"),
               "parameter_gather.scale",
               "group") == "");
  CHECK(unlike(of_gather(R"("codec": "quantize", "bits": 8, "units": "moments")"),
               "parameter_gather.units",
               "values") == "");
  CHECK(of_gather(R"("codec": "cast")") == "accepted");
  CHECK(of_gather(R"("codec": "cast")", "critical_path") == "accepted");
}

TEST_CASE("a setting of weights or rounds is the one that it is written and read back as") {
  for (const char* codec : {R"({"codec": "cast"})",
                            R"({"codec": "quantize", "bits": 4})",
                            R"({"codec": "quantize", "bits": 8, "scale": "tensor"})"}) {
    INFO(codec);
    JsonReader section = JsonReader::parse(codec, "test");
    const CodecSetting setting = read_gather_setting(section);
    JsonReader written = JsonReader::parse(codec_setting_json(setting), "test");
    CHECK(read_codec_setting(written) == setting);
  }
}

TEST_CASE("a policy without what it needs is refused") {
  for (const std::string policy : {"all", "optimus_cc", "critical_path"}) {
    const std::string said = refusal(R"({"policy": ")" + policy +
                                     R"(", "pipeline_backward": {"candidates": [{"codec": "cast"}]},
                                     "data_gradient": {"codec": "cast"}})");
    CHECK((said == "accepted") == (policy == "critical_path"));
    CHECK(
        (policy == "critical_path" || unlike(said, "pipeline_backward", "give it a codec") == ""));
  }
  CHECK(unlike(refusal(R"({"policy": "some"})"), "policy", "optimus_cc") == "");
  CHECK(unlike(refusal(R"({"policy": "all"})"), "policy", "compress.data_gradient.codec") == "");
  CHECK(unlike(refusal(R"({"policy": "list"})"), "policy", "compress.classes") == "");
  CHECK(unlike(refusal(R"({"policy": "replay"})"), "policy", "compress.plan") == "");
  CHECK(refusal(R"({"policy": "critical_path"})") == "accepted");
  CHECK(refusal(R"({"policy": "optimus_cc"})") == "accepted");
}

TEST_CASE("candidates stand beside a site's codec or alone; none are as if there were no list") {
  const CompressConfig config = read(R"({"policy": "critical_path",
      "pipeline_backward": {"candidates": [{"codec": "cast"}, {"codec": "low_rank", "rank": 4}]},
      "data_gradient": {"codec": "cast", "candidates": [{"codec": "quantize", "bits": 8}]}})");
  CHECK(config.candidates.at("pipeline_backward").size() == 2);
  CHECK(config.candidates.at("pipeline_backward")[1].rank == 4);
  CHECK(config.sites.size() == 1);
  CHECK(config.sites.at("data_gradient").kind == CodecKind::cast);
  CHECK(config.candidates.at("data_gradient").size() == 1);
  CHECK(unlike(refusal(R"({"data_gradient": {"candidates": []}})"),
               "data_gradient.codec",
               "required") == "");
  CHECK(read(R"({"data_gradient": {"codec": "cast", "candidates": []}})").candidates.empty());
}

TEST_CASE("listed classes need a site, a codec from somewhere, and known names") {
  const auto listed = [](const std::string& row) {
    return refusal(R"({"policy": "list", "classes": [)" + row + "]}");
  };
  CHECK(unlike(listed("{}"), "classes.0.site", "") == "");
  CHECK(unlike(listed(R"({"site": "outer"})"), "classes.0.site", "embedding") == "");
  CHECK(unlike(listed(R"({"site": "embedding"})"), "classes.0.site", "needs a codec here") == "");
  CHECK(unlike(listed(R"({"site": "embedding", "phase": "flush"})"),
               "classes.0.phase",
               "cooldown") == "");
  CHECK(unlike(listed(R"({"site": "embedding", "stage": -1})"), "classes.0.stage", "-1") == "");
  CHECK(unlike(listed(R"({"site": "embedding", "codec": {"codec": "cast", "rank": 2}})"),
               "classes.0.codec.rank",
               "nknown key") == "");
  CHECK(unlike(refusal(R"({"warmup_steps": -1})"), "warmup_steps", "-1") == "");
  CHECK(unlike(refusal(R"({"stages": -1})"), "stages", "-1") == "");
}

}  // namespace slackline
