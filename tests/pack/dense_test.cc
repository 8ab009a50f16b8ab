// Packed dense weights: every byte of the shards comes back, whatever happens on the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <random>

#include "base/aligned_buffer.h"
#include "checkpoint/dense_set.h"
#include "checkpoint/integrity.h"
#include "pack/pack_case.h"
#include "pack/pack_dense.h"
#include "tensor/bf12.h"

namespace deltafin::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DensePack : public testing::Test {
 protected:
  std::string to() const { return c_.root() + "/dense"; }
  // Small pieces, so that a matrix comes in several.
  PackDenseOptions Options() const {
    PackDenseOptions options;
    options.model = c_.model();
    options.to = to();
    options.threads = 2;
    options.piece_bytes = 4096;
    return options;
  }
  Result<PackDenseReport> Pack(const PackDenseOptions& options) { return PackDense(options, {}, {}); }
  std::string Message(const PackDenseOptions& options) {
    const Result<PackDenseReport> report = Pack(options);
    code_ = report ? ErrorCode::kInternal : report.error().code();
    return report ? "" : report.error().message();
  }

  // Every dense tensor out of the folder's files, by code of the tests' own around DecodeBf12Row, against the shards.
  void ExpectEverythingThere() {
    CheckpointOptions where;
    where.folder = c_.model();
    where.experts = ExpertsWanted::kElsewhere;
    Result<Checkpoint> checkpoint = Checkpoint::Open(where);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message();
    const Result<DenseManifest> manifest =
        DenseManifest::FromText(ReadFileBytes(to() + "/deltafin-dense.json"), "manifest");
    ASSERT_TRUE(manifest) << manifest.error().message();
    size_t tensors = 0, packed = 0, names = 0;
    for (const DenseUnit& unit : manifest->units) {
      const std::string bytes = ReadFileBytes(to() + "/" + manifest->FileName(unit.unit));
      ASSERT_EQ(bytes.size(), unit.bytes);
      EXPECT_EQ(Hash64(std::string_view(bytes)), unit.hash);
      uint64_t end = 0;
      for (const DenseTensor& tensor : unit.tensors) {
        const std::string padding = bytes.substr(end, tensor.offset - end);
        EXPECT_EQ(padding, std::string(padding.size(), '\0')) << tensor.name;
        end = tensor.offset + tensor.bytes;
        ExpectTensor(*checkpoint, tensor, bytes);
        ++tensors;
        packed += tensor.dtype == DType::kBf12 ? 1 : 0;
      }
      names += DenseUnitNames(*checkpoint, unit.unit).size();
    }
    EXPECT_EQ(tensors, names);
    EXPECT_GT(packed, manifest->units.size());
  }
  static void ExpectTensor(const Checkpoint& checkpoint, const DenseTensor& tensor, const std::string& bytes) {
    const TensorPlace& place = checkpoint.Dense(tensor.name);
    const std::string expected = ReadFileBytes(checkpoint.shard(place.shard).path()).substr(place.offset, place.bytes);
    if (tensor.dtype != DType::kBf12) {
      EXPECT_EQ(tensor.dtype, place.dtype);
      EXPECT_EQ(bytes.substr(tensor.offset, tensor.bytes), expected) << tensor.name;
      return;
    }
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    Result<AlignedBuffer> memory = AlignedBuffer::Create(tensor.bytes, false);
    std::memcpy(memory->data(), bytes.data() + tensor.offset, tensor.bytes);
    ASSERT_TRUE(CheckBf12(Bytes(memory->data(), tensor.bytes), rows, columns)) << tensor.name;
    const Bf12View view(memory->data(), rows, columns);
    std::vector<uint16_t> decoded(static_cast<size_t>(rows * columns));
    for (int64_t n = 0; n < rows; ++n) DecodeBf12Row(view.Row(n), columns, decoded.data() + n * columns);
    EXPECT_EQ(std::memcmp(decoded.data(), expected.data(), expected.size()), 0) << tensor.name;
  }

  PackCase c_;
  ErrorCode code_ = ErrorCode::kInternal;
};

TEST_F(DensePack, EveryTensorComesBackAndTheReportIsRight) {
  uint64_t last = 0;
  const Result<PackDenseReport> report = PackDense(Options(),
                                                   [&](const PackDenseProgress& p) {
                                                     EXPECT_GE(p.bytes_done, last);
                                                     EXPECT_LE(p.bytes_done, p.bytes_total);
                                                     last = p.bytes_done;
                                                   },
                                                   {});
  ASSERT_TRUE(report) << report.error().message();
  ExpectEverythingThere();
  EXPECT_EQ(report->units, kPackLayers + 2);
  EXPECT_EQ(report->units_kept, 0);
  EXPECT_EQ(last, report->source_bytes);
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(to()))
    if (entry.path().extension() == ".bin") bytes += entry.file_size();
  EXPECT_EQ(report->bytes, bytes);
  EXPECT_EQ(report->bytes_written, bytes);
  EXPECT_FALSE(fs::exists(to() + "/deltafin-dense.partial.json"));
}

TEST_F(DensePack, PiecesAndThreadsDoNotChangeTheBytes) {
  ASSERT_TRUE(Pack(Options()));
  const FileContents expected = c_.Files();
  for (const uint64_t piece : {uint64_t{1}, uint64_t{100000}, uint64_t{32} << 20}) {
    fs::remove_all(to());
    PackDenseOptions options = Options();
    options.piece_bytes = piece;
    options.threads = 3;
    ASSERT_EQ(Message(options), "");
    EXPECT_EQ(Difference(expected, c_.Files()), "") << piece;
  }
}

TEST_F(DensePack, PackingAgainKeepsWhatIsThereAndMendsWhatIsDamaged) {
  ASSERT_TRUE(Pack(Options()));
  const FileContents expected = c_.Files();
  Result<PackDenseReport> again = Pack(Options());
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->units_kept, again->units);
  EXPECT_EQ(again->bytes_written, 0u);
  EXPECT_EQ(Difference(expected, c_.Files()), "");

  FlipByte(to() + "/deltafin-dense-layer-001.bin", 1000);
  fs::resize_file(to() + "/deltafin-dense-head.bin", 4096);
  fs::remove(to() + "/deltafin-dense-layer-000.bin");
  std::vector<std::string> notes;
  PackDenseOptions options = Options();
  options.on_note = [&](const std::string& note) { notes.push_back(note); };
  again = Pack(options);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->units_kept, again->units - 3);
  EXPECT_EQ(notes.size(), 3u);
  EXPECT_EQ(Difference(expected, c_.Files()), "");

  FlipByte(to() + "/deltafin-dense.json", 50);
  ASSERT_EQ(Message(Options()), "");
  EXPECT_EQ(Difference(expected, c_.Files()), "");
}

TEST_F(DensePack, FoldersOfAnotherModelOrOfNobodyAreLeftAlone) {
  ASSERT_TRUE(Pack(Options()));
  c_.MakeAnotherModel();
  const FileContents before = c_.Files();
  EXPECT_THAT(Message(Options()), AllOf(HasSubstr("got those of model"), HasSubstr("empty folder")));
  EXPECT_EQ(code_, ErrorCode::kCorrupt);
  EXPECT_EQ(Difference(before, c_.Files()), "");
  fs::remove(to() + "/deltafin-dense.json");
  EXPECT_THAT(Message(Options()), HasSubstr("is in the way"));
  EXPECT_EQ(code_, ErrorCode::kInvalidArgument);
  PackDenseOptions into_model = Options();
  into_model.to = c_.model() + "/.";
  EXPECT_THAT(Message(into_model), HasSubstr("of its own"));
  EXPECT_EQ(code_, ErrorCode::kInvalidArgument);
}

TEST_F(DensePack, AFullDriveIsAnErrorThatTheSameCommandGoesOnFrom) {
  PackDenseOptions options = Options();
  int writes = 0;
  options.hook = [&](DiskStep step, const std::string& path) -> Status {
    if (step == DiskStep::kWrite && path.ends_with(".bin") && ++writes > 2) return DiskFailure("writing", path, ENOSPC);
    return {};
  };
  EXPECT_THAT(Message(options), HasSubstr("give the same command again"));
  EXPECT_EQ(code_, ErrorCode::kUnavailable);
  EXPECT_FALSE(fs::exists(to() + "/deltafin-dense.json"));
  const Result<PackDenseReport> report = Pack(Options());
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->units_kept, 2);
  ExpectEverythingThere();
}

TEST_F(DensePack, ACancelledPackGoesOnWhereItStopped) {
  CancelSource cancel;
  int32_t done = 0;
  const auto stop = [&](const PackDenseProgress& p) {
    done = p.units_done;
    if (p.units_done == 2) cancel.Cancel();
  };
  const Result<PackDenseReport> stopped = PackDense(Options(), stop, cancel.token());
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(done, 2);
  const Result<PackDenseReport> report = Pack(Options());
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->units_kept, 2);
  ExpectEverythingThere();
}

TEST_F(DensePack, KilledAtAnyStepItEndsWithTheSameBytes) {
  std::atomic<int> steps{0};
  PackDenseOptions counting = Options();
  counting.hook = [&](DiskStep, const std::string&) -> Status {
    ++steps;
    return {};
  };
  ASSERT_TRUE(Pack(counting));
  const FileContents expected = c_.Files();
  std::mt19937 random(5);
  for (int i = 0; i < DELTAFIN_PACK_KILLS; ++i) {
    const int step = std::uniform_int_distribution<int>(1, steps.load())(random);
    SCOPED_TRACE("killed before change " + std::to_string(step) + " of " + std::to_string(steps.load()));
    fs::remove_all(to());
    const pid_t pid = fork();
    if (pid == 0) {
      std::atomic<int> changes{0};
      PackDenseOptions options = Options();
      options.hook = [&](DiskStep, const std::string&) -> Status {
        if (++changes == step) kill(getpid(), SIGKILL);
        return {};
      };
      _exit(Pack(options) ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    ASSERT_EQ(Message(Options()), "");
    ASSERT_EQ(Difference(expected, c_.Files()), "");
  }
}

}  // namespace
}  // namespace deltafin::test
