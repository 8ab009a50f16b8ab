#include "checkpoint/micro_copy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace deltafin::test {

namespace fs = std::filesystem;

std::string ReadBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(out.flush()) << path;
}

MicroCopy::MicroCopy() {
  for (const auto& entry : fs::directory_iterator(RepoPath("tests/data/k3-micro")))
    fs::copy_file(entry.path(), folder_.path() / entry.path().filename());
}

std::string MicroCopy::ShardName(int number) { return Cat("model-0000", number, "-of-000007.safetensors"); }

void MicroCopy::EditJson(const std::string& file, const std::function<void(Json&)>& edit) {
  Json value = Json::parse(ReadBytes(path(file)));
  edit(value);
  WriteBytes(path(file), value.dump());
}

void MicroCopy::EditHeader(int number, const std::function<void(Json&)>& edit, size_t pad) {
  ForeignHeader header = ReadForeignHeader(shard(number));
  const std::string data = ReadBytes(shard(number)).substr(header.data_start);
  edit(header.tensors);
  const std::string json = header.tensors.dump() + std::string(pad, ' ');
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(json.size() >> (8 * i) & 255);
  WriteBytes(shard(number), length + json + data);
}

void MicroCopy::Poke(const std::string& file, uint64_t offset, unsigned char value) {
  std::string bytes = ReadBytes(path(file));
  bytes.at(offset) = static_cast<char>(value);
  WriteBytes(path(file), bytes);
}

std::string MicroCopy::Message() const {
  const Result<Checkpoint> opened = Open();
  return opened ? "opened" : opened.error().message();
}

ErrorCode MicroCopy::Code() const {
  const Result<Checkpoint> opened = Open();
  return opened ? ErrorCode::kInternal : opened.error().code();
}

void TakeExpertsOut(MicroCopy& copy, int number, const std::string& moved_to) {
  const ForeignHeader header = ReadForeignHeader(copy.shard(number));
  const std::string data = ReadBytes(copy.shard(number)).substr(header.data_start);
  Json kept = Json::object();
  if (!moved_to.empty()) kept["__metadata__"] = {{"deltafin_experts_moved_to", moved_to}};
  std::string kept_data;
  for (const auto& [name, tensor] : header.tensors.items()) {
    if (name.find(".experts.") != std::string::npos) continue;
    const auto begin = tensor["data_offsets"][0].get<uint64_t>(), end = tensor["data_offsets"][1].get<uint64_t>();
    kept[name] = tensor;
    kept[name]["data_offsets"] = {kept_data.size(), kept_data.size() + (end - begin)};
    kept_data += data.substr(begin, end - begin);
  }
  const std::string json = kept.dump();
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(json.size() >> (8 * i) & 255);
  WriteBytes(copy.shard(number), length + json + kept_data);
}

ForeignHeader ReadForeignHeader(const std::string& path) {
  const std::string start = ReadRange(path, 0, 8);
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(start[i]);
  Json tensors = Json::parse(ReadRange(path, 8, length));
  tensors.erase("__metadata__");
  return {std::move(tensors), 8 + length};
}

std::string ReadRange(const std::string& path, uint64_t offset, uint64_t bytes) {
  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(offset));
  std::string out(bytes, '\0');
  in.read(out.data(), static_cast<std::streamsize>(bytes));
  EXPECT_EQ(static_cast<uint64_t>(in.gcount()), bytes) << path;
  return out;
}

}  // namespace deltafin::test
