// Generates a video in C++17, prints progress, and stops at Ctrl-C.
//
//   c++ -std=c++17 generate.cpp -o generate $(pkg-config --cflags --libs weft)
//   ./generate MODEL "a red circle moving left" OUT.mp4
#include <weft/weft.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <stdexcept>

namespace
{

void check(weft_status_code status)
{
    if (status != WEFT_OK)
        throw std::runtime_error(weft_error_message());
}

struct release {
    void operator()(weft_video_generator *generator) const
    {
        weft_video_generator_free(generator);
    }
};
using video_generator = std::unique_ptr<weft_video_generator, release>;

video_generator open(const char *model)
{
    auto options = WEFT_INIT(weft_generate_options);
    options.steps = 4;
    options.guidance = 2;
    weft_video_generator *generator = nullptr;
    check(weft_video_generator_open(model, &options, nullptr, &generator));
    return video_generator(generator);
}

weft_status_code print_step(void *, std::int64_t, std::int64_t done, std::int64_t steps)
{
    std::printf("step %lld of %lld\n", static_cast<long long>(done), static_cast<long long>(steps));
    return WEFT_OK;
}

void print_message(void *, const weft_log_message *message)
{
    std::fprintf(stderr, "weft: %s\n", message->text);
}

weft_video_generator *running;

void stop(int)
{
    weft_video_generator_cancel(running);
}

void generate(const char *model, const char *prompt, const char *out)
{
    const video_generator generator = open(model);
    auto description = WEFT_INIT(weft_generator_description);
    check(weft_video_generator_describe(generator.get(), &description));
    std::printf("generating needs %.1f MiB\n", static_cast<double>(description.bytes) / (1 << 20));
    check(weft_video_generator_bind(generator.get()));

    running = generator.get();
    std::signal(SIGINT, stop);
    auto callbacks = WEFT_INIT(weft_generate_callbacks);
    callbacks.step = print_step;
    check(weft_video_generator_write(generator.get(), prompt, 7, out, &callbacks));
    std::signal(SIGINT, SIG_DFL);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 4) {
        std::fprintf(stderr, "usage: generate MODEL PROMPT OUT.mp4\n");
        return 2;
    }
    weft_log_set_callback(print_message, nullptr);
    try {
        generate(argv[1], argv[2], argv[3]);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "generate: %s\n", error.what());
        return 1;
    }
    std::printf("%s\n", argv[3]);
    return 0;
}
