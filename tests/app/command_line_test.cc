// The command line itself: mistyped words, help, choices, models found by name, wrapped text.
#include "app/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "app/bundled_model.h"
#include "app/choices.h"
#include "app/command_table.h"
#include "app/unknown_word.h"
#include "app/wrapped_text.h"
#include "support/process.h"
#include "support/test_data.h"

namespace deltafin {
namespace {

using testing::HasSubstr;
using testing::Not;

test::ProcessResult Deltafin(std::vector<std::string> arguments) {
  test::ProcessOptions options;
  options.arguments = std::move(arguments);
  return test::RunProcess(DELTAFIN_PROGRAM, options);
}

std::string Unknown(std::vector<std::string> words) {
  CLI::App root("", "deltafin");
  const std::vector<Command> commands = AddCommands(root);
  return UnknownWord(root, words);
}

TEST(UnknownWord, IsNamedWithTheNearestRightOne) {
  EXPECT_EQ(Unknown({"rnu"}), "no such command: rnu: did you mean run?");
  EXPECT_EQ(Unknown({"run", "--modle", "m1"}), "no such option of deltafin run: --modle: did you mean --model?");
  EXPECT_EQ(Unknown({"run", "--modle=m1"}), "no such option of deltafin run: --modle: did you mean --model?");
  EXPECT_EQ(Unknown({"bench", "kernel"}), "no such command of deltafin bench: kernel: did you mean kernels?");
  EXPECT_EQ(Unknown({"xyzzyxyzzy"}), "no such command: xyzzyxyzzy");
  EXPECT_EQ(Unknown({"run", "--model", "m", "--xyzzyxyzzy"}), "no such option of deltafin run: --xyzzyxyzzy");
}

TEST(UnknownWord, IsNoneAmongRightOnes) {
  EXPECT_EQ(Unknown({"run", "--model", "--modle"}), "") << "a value, however odd";
  EXPECT_EQ(Unknown({"bench", "run", "--model", "m"}), "");
  EXPECT_EQ(Unknown({"drives", "/mnt/a", "/mnt/b", "--seconds=3"}), "");
  EXPECT_EQ(Unknown({"plan", "--what-if", "-drive:5"}), "");
}

TEST(CommandLine, AMistypedWordEndsWithTwoAndIsNamedFirst) {
  const auto command = Deltafin({"rnu"});
  EXPECT_EQ(command.exit_code, 2);
  EXPECT_THAT(command.err, testing::StartsWith("deltafin: no such command: rnu: did you mean run?\n"));
  const auto option = Deltafin({"run", "--modle", "m1"});
  EXPECT_EQ(option.exit_code, 2);
  EXPECT_THAT(option.err, HasSubstr("--modle: did you mean --model?"));
}

TEST(CommandLine, HelpOfACommandIsItsOwn) {
  EXPECT_EQ(Deltafin({"help"}).out, Deltafin({"--help"}).out);
  EXPECT_EQ(Deltafin({"help", "run"}).out, Deltafin({"run", "--help"}).out);
  const auto nested = Deltafin({"help", "bench", "run"});
  EXPECT_EQ(nested.exit_code, 0);
  EXPECT_EQ(nested.out, Deltafin({"bench", "run", "--help"}).out);
  EXPECT_EQ(Deltafin({"help", "rnu"}).exit_code, 2);
}

TEST(CommandLine, HelpSaysRangesInWordsAndGroupsTheEnginesOptions) {
  const std::string help = Deltafin({"run", "--help"}).out;
  EXPECT_THAT(help, HasSubstr("--threads N (1 to 1024)"));
  EXPECT_THAT(help, Not(HasSubstr("INT")));
  EXPECT_THAT(help, HasSubstr("Engine: drafting:\n"));
  EXPECT_THAT(help, HasSubstr("--io auto|uring|pread"));
}

TEST(CommandLine, AModelThatCameWithTheProgramIsFoundByItsName) {
  EXPECT_EQ(ModelFolder("no-such-model"), "no-such-model");
  EXPECT_EQ(ModelFolder("./k3-nano"), "./k3-nano");
  const auto inspected = Deltafin({"inspect", "--model", "k3-nano", "--no-state"});
  EXPECT_EQ(inspected.exit_code, 0) << inspected.err;
  EXPECT_THAT(inspected.out, HasSubstr("complete: ready to run"));
}

TEST(Choices, AreRefusedByName) {
  EXPECT_TRUE(CheckChoice("--io", "uring"));
  EXPECT_EQ(CheckChoice("--io", "foo").error().message(), "--io foo: expected auto, uring or pread");
  EXPECT_EQ(CheckChoice("--pin", "").error().message(), "--pin : expected auto or off");
}

TEST(WrappedText, BreaksBetweenWordsOnly) {
  EXPECT_EQ(Wrapped("one two three", 7), "one two\nthree");
  EXPECT_EQ(Wrapped("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(Wrapped("a   table  row\nnext", 20), "a   table  row\nnext");
  EXPECT_EQ(Wrapped("averyveryverylongword x", 5), "averyveryverylongword\nx");
  EXPECT_EQ(Wrapped("any width", 0), "any width");
  EXPECT_EQ(Wrapped("  indented\n", 40), "  indented\n");
}

}  // namespace
}  // namespace deltafin
