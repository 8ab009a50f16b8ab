// Feeds token ids to llama.cpp and prints times, for bench/llama_peer, which compiles it against that library's
// headers.
//   llama_peer_run BACKENDS-FOLDER MODEL.gguf THREADS NEW repack|plain IDS IDS ...
// IDS is a prompt, comma-separated; the first one is not counted: it warms up. One JSON object on stdout: for each of
// the others the seconds of the prompt and of every token decoded greedily after it, and those tokens' ids.
#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<llama_token> ParseIds(const char* text) {
  std::vector<llama_token> ids;
  for (char* end = nullptr;; text = end + 1) {
    ids.push_back(static_cast<llama_token>(std::strtol(text, &end, 10)));
    if (*end != ',') return ids;
  }
}

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "llama_peer_run: %s\n", what);
  std::exit(1);
}

// Feeds `ids` and returns the likeliest next token.
llama_token Feed(llama_context* context, std::vector<llama_token> ids, int vocabulary) {
  if (llama_decode(context, llama_batch_get_one(ids.data(), static_cast<int32_t>(ids.size()))) != 0)
    Die("llama_decode");
  const float* logits = llama_get_logits_ith(context, -1);
  return static_cast<llama_token>(std::max_element(logits, logits + vocabulary) - logits);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 8) Die("expected at least seven arguments");
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  ggml_backend_load_all_from_path(argv[1]);
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  model_params.load_mode = LLAMA_LOAD_MODE_MMAP;
  model_params.use_extra_bufts = std::strcmp(argv[5], "repack") == 0;
  llama_model* model = llama_model_load_from_file(argv[2], model_params);
  if (model == nullptr) Die("the model does not load");
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 1024;
  params.n_batch = params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = std::atoi(argv[3]);
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v = GGML_TYPE_F32;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) Die("no context");
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));

  std::string out = "{\"rounds\": [";
  for (int prompt = 6; prompt < argc; ++prompt) {
    llama_memory_clear(llama_get_memory(context), true);
    double before = SecondsNow();
    llama_token token = Feed(context, ParseIds(argv[prompt]), vocabulary);
    std::string times = "{\"prompt\": " + std::to_string(SecondsNow() - before) + ", \"tokens\": [", ids;
    for (int i = 0; i < std::atoi(argv[4]); ++i) {
      ids += (i == 0 ? "" : ", ") + std::to_string(token);
      before = SecondsNow();
      token = Feed(context, {token}, vocabulary);
      times += (i == 0 ? "" : ", ") + std::to_string(SecondsNow() - before);
    }
    if (prompt > 6) out += (prompt > 7 ? ", " : "") + times + "], \"ids\": [" + ids + "]}";
  }
  std::printf("%s]}\n", out.c_str());
  std::fflush(stdout);
  llama_free(context);
  llama_model_free(model);
  return 0;
}
