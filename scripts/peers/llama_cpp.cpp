// A live peer for scenarios: llama.cpp behind Assay's peer protocol (docs/scenarios.md).
//
// The whole token loop runs in here, between two reads of one clock; the harness checks these times
// against its own. Build it against a built llama.cpp tree L:
//
//   g++ -O2 -std=c++17 -I L/include -I L/ggml/include -I L/vendor scripts/peers/llama_cpp.cpp \
//       -L L/build/bin -Wl,-rpath,L/build/bin -lllama -lggml -lggml-base -o llama-peer
//
//   command: [./llama-peer, model.gguf, HUGGING_FACE_DIGEST]
//
// The digest says which Hugging Face folder the GGUF file was converted from; without it the times
// are shown and no ratio:
//   cd FOLDER && sha256sum config.json *.safetensors | LC_ALL=C sort -k 2 | sha256sum

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/resource.h>

#include "llama.h"
#include "nlohmann/json.hpp"

using json = nlohmann::json;
using clock_type = std::chrono::steady_clock;

static double ms_between(clock_type::time_point a, clock_type::time_point b) {
    return std::chrono::duration<double, std::milli>(b - a).count();
}

struct Peer {
    llama_model *model = nullptr;
    llama_context *context = nullptr;
    int32_t vocab = 0;
    // With `prefill: once`: the prompt whose rows the context begins with, and the token behind it.
    std::vector<llama_token> kept;
    llama_token behind = 0;

    void load(const std::string &path, int threads) {
        llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
        llama_backend_init();
        llama_model_params options = llama_model_default_params();
        options.n_gpu_layers = 0;
        model = llama_model_load_from_file(path.c_str(), options);
        if (!model) throw std::runtime_error("cannot load " + path);
        llama_context_params wanted = llama_context_default_params();
        wanted.n_ctx = 4096;
        wanted.n_batch = wanted.n_ubatch = 2048;
        wanted.n_threads = wanted.n_threads_batch = threads;
        wanted.no_perf = true;
        context = llama_init_from_model(model, wanted);
        if (!context) throw std::runtime_error("cannot make a context");
        vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    }

    // One step, in pieces of at most a batch; the id of the largest logit, the lowest on ties.
    llama_token step(std::vector<llama_token> tokens) {
        const size_t most = llama_n_batch(context);
        for (size_t from = 0; from < tokens.size(); from += most) {
            const auto piece = int32_t(std::min(most, tokens.size() - from));
            if (llama_decode(context, llama_batch_get_one(tokens.data() + from, piece)) != 0)
                throw std::runtime_error("llama_decode failed");
        }
        const float *logits = llama_get_logits_ith(context, -1);
        return llama_token(std::max_element(logits, logits + vocab) - logits);
    }

    json forward(const std::vector<llama_token> &prompt, uint32_t decode_tokens, bool once) {
        for (llama_token id : prompt)
            if (id < 0 || id >= vocab) throw std::runtime_error("an id outside the vocabulary");
        std::vector<llama_token> tokens;
        auto begun = clock_type::now();
        llama_memory_t memory = llama_get_memory(context);
        if (!once || kept != prompt || !llama_memory_seq_rm(memory, 0, int32_t(prompt.size()), -1)) {
            kept.clear();
            llama_memory_clear(memory, true);
            behind = step(prompt);
            if (once) kept = prompt;
        }
        tokens.push_back(behind);
        auto first = clock_type::now();
        for (uint32_t i = 0; i < decode_tokens; i++) tokens.push_back(step({tokens.back()}));
        auto end = clock_type::now();
        return {{"reply", "forwarded"},
                {"prefill_ms", ms_between(begun, first)},
                {"decode_ms", ms_between(first, end)},
                {"prompt_tokens", prompt.size()},
                {"decode_tokens", decode_tokens},
                {"tokens", tokens}};
    }
};

static void say(const json &reply) { std::cout << reply.dump() << std::endl; }

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        std::fprintf(stderr, "usage: llama-peer MODEL.gguf [HUGGING_FACE_DIGEST]\n");
        return 64;
    }
    Peer peer;
    std::string line;
    try {
        while (std::getline(std::cin, line)) {
            json ask = json::parse(line);
            const std::string what = ask.at("ask");
            if (what == "load") {
                if (ask.at("protocol") != 1) throw std::runtime_error("this peer speaks protocol 1");
                const int threads = ask.at("threads");
                peer.load(argv[1], threads);
                char described[128];
                llama_model_desc(peer.model, described, sizeof described);
                json reply = {{"reply", "loaded"},   {"protocol", 1},      {"name", "llama.cpp"},
                              {"model", described},  {"output", "tokens"}, {"threads", threads}};
                if (argc == 3) reply["weights_from"] = argv[2];
                say(reply);
            } else if (what == "forward") {
                const bool once = ask.value("prefill", "timed") == "once";
                say(peer.forward(ask.at("prompt"), ask.at("decode_tokens"), once));
            } else if (what == "finish") {
                rusage usage{};
                getrusage(RUSAGE_SELF, &usage);
                say({{"reply", "finished"}, {"host_bytes", uint64_t(usage.ru_maxrss) * 1024}});
                return 0;
            } else {
                throw std::runtime_error("unknown request " + what);
            }
        }
    } catch (const std::exception &error) {
        say({{"reply", "failed"}, {"message", error.what()}});
        return 1;
    }
    return 0;
}
