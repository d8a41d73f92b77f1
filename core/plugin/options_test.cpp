// Declared options and TOML settings give values.
#include "core/plugin/options.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace penstock::options_test {
namespace {

const penstock_str kScopes[] = {str("item"), str("bucket")};

penstock_option option(std::string_view name, uint32_t type) {
  penstock_option result{};
  result.struct_size = sizeof result;
  result.name = str(name);
  result.type = type;
  result.minimum = -HUGE_VAL;
  result.maximum = HUGE_VAL;
  return result;
}

// density: real in (0, 1]; rank: integer in [1, 64]; exact: bool; scope: choice; note: string,
// rank-local.
struct Declared {
  penstock_option density = option("density", PENSTOCK_OPTION_REAL);
  penstock_option rank = option("rank", PENSTOCK_OPTION_INTEGER);
  penstock_option exact = option("exact", PENSTOCK_OPTION_BOOL);
  penstock_option scope = option("scope", PENSTOCK_OPTION_CHOICE);
  penstock_option note = option("note", PENSTOCK_OPTION_STRING);
  std::vector<const penstock_option*> all = {&density, &rank, &exact, &scope, &note};

  Declared() {
    density.minimum = 0;
    density.maximum = 1;
    density.flags = PENSTOCK_OPTION_OPEN_MINIMUM;
    density.default_real = 0.01;
    density.unit = str("fraction");
    rank.minimum = 1;
    rank.maximum = 64;
    rank.default_integer = 4;
    exact.default_integer = 1;
    scope.choices = kScopes;
    scope.n_choices = 2;
    scope.default_text = str("item");
    note.flags = PENSTOCK_OPTION_RANK_LOCAL;
    note.default_text = str("a \"quoted\" word");
  }
  Declared(const Declared&) = delete;

  Result<OptionValues> resolve(const Settings& settings) const {
    return resolve_options(all.data(), all.size(), settings, "compressor.topk", {"run.toml", 2, 1});
  }
  std::string error(const std::string& key,
                    std::variant<bool, int64_t, double, std::string> value) const {
    const Result<OptionValues> values = resolve({{key, {std::move(value), {"run.toml", 3, 1}}}});
    return values.ok() ? "no error" : std::string(values.status().message());
  }
  Status check() const { return check_option_declarations(all.data(), all.size()); }
};

TEST(Options, DefaultsFillInWhatIsNotSetInDeclarationOrder) {
  const Declared declared;
  const Result<OptionValues> values = declared.resolve({});
  ASSERT_TRUE(values.ok());
  ASSERT_EQ(values.value().size(), 5u);
  const penstock_option_value* const* all = values.value().data();
  EXPECT_EQ(view(all[0]->name), "density");
  EXPECT_EQ(all[0]->real, 0.01);
  EXPECT_EQ(all[0]->is_default, 1u);
  EXPECT_EQ(all[1]->integer, 4);
  EXPECT_EQ(all[2]->integer, 1);
  EXPECT_EQ(view(all[3]->text), "item");
  EXPECT_EQ(view(all[4]->text), "a \"quoted\" word");
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(all[i]->struct_size, sizeof(penstock_option_value));
}

TEST(Options, SettingsReplaceDefaultsAndSurviveAMove) {
  const Declared declared;
  Result<OptionValues> values = declared.resolve({{"density", {0.5, {}}},
                                                  {"rank", {int64_t{64}, {}}},
                                                  {"exact", {false, {}}},
                                                  {"scope", {std::string("bucket"), {}}},
                                                  {"note", {std::string(), {}}}});
  ASSERT_TRUE(values.ok());
  const OptionValues moved = std::move(values.value());
  EXPECT_EQ(moved.find("density")->real, 0.5);
  EXPECT_EQ(moved.find("density")->is_default, 0u);
  EXPECT_EQ(moved.find("rank")->integer, 64);
  EXPECT_EQ(moved.find("exact")->integer, 0);
  EXPECT_EQ(view(moved.find("scope")->text), "bucket");
  EXPECT_EQ(moved.find("note")->text.size, 0u);
  EXPECT_EQ(moved.find("densit"), nullptr);
}

TEST(Options, AnIntegerIsTakenForARealButNotTheReverse) {
  const Declared declared;
  const Result<OptionValues> values = declared.resolve({{"density", {int64_t{1}, {}}}});
  ASSERT_TRUE(values.ok());
  EXPECT_EQ(values.value().find("density")->real, 1.0);
  EXPECT_EQ(declared.error("rank", 4.0),
            "run.toml:3:1: compressor.topk.rank is 4, expected an integer in [1, 64]");
}

TEST(Options, ValuesOutsideTheirRangeAreRefusedWithIt) {
  const Declared declared;
  const std::string expected = ", expected a real in (0, 1], in fraction";
  EXPECT_EQ(declared.error("density", 0.0),
            "run.toml:3:1: compressor.topk.density is 0" + expected);
  EXPECT_EQ(declared.error("density", 1.5),
            "run.toml:3:1: compressor.topk.density is 1.5" + expected);
  EXPECT_EQ(declared.error("density", std::nan("")),
            "run.toml:3:1: compressor.topk.density is nan" + expected);
  EXPECT_EQ(declared.error("rank", int64_t{0}),
            "run.toml:3:1: compressor.topk.rank is 0, expected an integer in [1, 64]");
  EXPECT_NE(declared.error("rank", std::numeric_limits<int64_t>::max()), "no error");
  EXPECT_EQ(declared.error("density", 1.0), "no error");
}

TEST(Options, WrongTypesAndChoicesAreRefused) {
  const Declared declared;
  EXPECT_EQ(declared.error("exact", int64_t{1}),
            "run.toml:3:1: compressor.topk.exact is 1, expected true or false");
  EXPECT_EQ(
      declared.error("density", std::string("1%")),
      "run.toml:3:1: compressor.topk.density is \"1%\", expected a real in (0, 1], in fraction");
  EXPECT_EQ(declared.error("note", true),
            "run.toml:3:1: compressor.topk.note is true, expected a string");
  EXPECT_EQ(declared.error("scope", std::string("bukcet")),
            "run.toml:3:1: compressor.topk.scope is \"bukcet\", expected one of \"item\", "
            "\"bucket\"; did you mean "
            "\"bucket\"?");
}

TEST(Options, AnUnknownKeyGetsTheNearestName) {
  const Declared declared;
  EXPECT_EQ(declared.error("densty", 0.1),
            "run.toml:3:1: unknown option \"compressor.topk.densty\"; did you mean \"density\"?");
  EXPECT_EQ(declared.error("velocity", 0.1),
            "run.toml:3:1: unknown option \"compressor.topk.velocity\"; known are: density, rank, "
            "exact, scope, note");
  const Result<OptionValues> none =
      resolve_options(nullptr, 0, {{"a", {true, {"run.toml", 3, 1}}}}, "memory.none", {});
  EXPECT_EQ(none.status().message(), "run.toml:3:1: unknown option \"memory.none.a\"; it has none");
}

TEST(Options, ARequiredOptionMustBeSet) {
  Declared declared;
  declared.rank.flags = PENSTOCK_OPTION_REQUIRED;
  EXPECT_EQ(declared.resolve({}).status().message(),
            "run.toml:2:1: compressor.topk.rank is missing and has no default, expected an integer "
            "in [1, 64]");
  EXPECT_TRUE(declared.resolve({{"rank", {int64_t{2}, {}}}}).ok());
  EXPECT_EQ(option_default_text(declared.rank), "");
}

TEST(Options, LinesForAgreementLeaveOutWhatIsRankLocal) {
  const Declared declared;
  const Result<OptionValues> values = declared.resolve({{"density", {0.1, {}}}});
  ASSERT_TRUE(values.ok());
  EXPECT_EQ(values.value().lines(), (std::vector<std::string>{"density = 0.1", "rank = 4",
                                                              "exact = true", "scope = \"item\""}));
  EXPECT_EQ(values.value().lines(true).back(), "note = \"a \\\"quoted\\\" word\"");
}

TEST(Options, RangesAndDefaultsReadWell) {
  Declared declared;
  EXPECT_EQ(option_range_text(declared.density), "in (0, 1]");
  EXPECT_EQ(option_range_text(declared.scope), "one of \"item\", \"bucket\"");
  EXPECT_EQ(option_range_text(declared.note), "");
  declared.density.maximum = HUGE_VAL;
  EXPECT_EQ(option_range_text(declared.density), "above 0");
  declared.rank.maximum = HUGE_VAL;
  EXPECT_EQ(option_range_text(declared.rank), "of at least 1");
  declared.rank.minimum = -HUGE_VAL;
  EXPECT_EQ(option_range_text(declared.rank), "");
  EXPECT_EQ(option_default_text(declared.exact), "true");
  EXPECT_EQ(option_default_text(declared.scope), "\"item\"");
  EXPECT_EQ(option_type_name(PENSTOCK_OPTION_CHOICE), "choice");
  EXPECT_EQ(option_type_name(17), "unknown");
}

TEST(Declarations, ThoseOfAGoodPluginPass) {
  EXPECT_TRUE(Declared().check().ok());
  EXPECT_TRUE(check_option_declarations(nullptr, 0).ok());
}

TEST(Declarations, FaultsOfAPluginAreFound) {
  const auto fault = [](auto&& change) {
    Declared declared;
    change(declared);
    return std::string(declared.check().message());
  };
  EXPECT_EQ(check_option_declarations(nullptr, 3).code(), Code::invalid_argument);
  EXPECT_NE(fault([](Declared& d) { d.all[1] = nullptr; }), "");
  EXPECT_NE(fault([](Declared& d) { d.rank.struct_size = 8; }), "");
  EXPECT_NE(fault([](Declared& d) { d.rank.struct_size = ~uint64_t{0}; }), "");
  EXPECT_NE(fault([](Declared& d) { d.rank.name = str("Rank"); }), "");
  EXPECT_NE(fault([](Declared& d) { d.rank.name = str("plugin"); }), "");
  EXPECT_NE(fault([](Declared& d) { d.rank.name = {nullptr, 0}; }), "");
  EXPECT_NE(fault([](Declared& d) { d.rank.type = 9; }), "");
  EXPECT_NE(fault([](Declared& d) { d.rank.default_integer = 65; }), "");
  EXPECT_NE(fault([](Declared& d) { d.density.default_real = 0; }), "");
  EXPECT_NE(fault([](Declared& d) { d.density.minimum = std::nan(""); }), "");
  EXPECT_NE(fault([](Declared& d) { d.scope.default_text = str("set"); }), "");
  EXPECT_NE(fault([](Declared& d) { d.scope.n_choices = 0; }), "");
  EXPECT_NE(fault([](Declared& d) { d.rank.name = str("density"); }), "");
}

}  // namespace
}  // namespace penstock::options_test
