/* A program around weft as a library. It reads clips from shards and trains a small model of its
 * own for three steps. Then it generates a video with a model of `weft train`.
 *
 *   cc -std=c17 embed.c -o embed $(pkg-config --cflags --libs weft)
 *   ./embed SHARDS MODEL OUT.mp4 */
#include <weft/weft.h>

#include <stdio.h>
#include <string.h>

enum { BATCH = 4, FRAMES = 5, SIDE = 16, PIXELS = FRAMES * SIDE * SIDE * 3, CODE = 24, STEPS = 3 };

#define CHECK(call)                                                                                \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != WEFT_OK)                                                                     \
            goto out;                                                                              \
    } while (0)

/* ---- a model: every clip through a code of 24 numbers and back ------------------------------- */

/* video (B,T,Y,X,3) -> mean squared error of the reconstruction. The graph is mathematics over
 * complete tensors, without memory, threads or ranks. */
static weft_value build_loss(weft_graph *g)
{
    const weft_value video =
        weft_input(g, "video", WEFT_F32, WEFT_DIMS(BATCH, FRAMES, SIDE, SIDE, 3));
    const weft_value x = weft_reshape(g, video, WEFT_DIMS(BATCH, PIXELS));
    weft_value y = weft_nn_dense(g, "encode", x, CODE, true);
    y = weft_nn_dense(g, "decode", weft_map(g, WEFT_MAP_GELU_TANH, y), PIXELS, true);
    return weft_mean_all(g, weft_map(g, WEFT_MAP_SQUARE, weft_sub(g, y, x)));
}

/* One step of AdamW: *loss is the loss before the step. */
static weft_status_code run_step(weft_program *program, int step, float *loss)
{
    const struct {
        const char *name;
        float value;
    } scalar[] = {{"optimizer.lr", 1e-3f},
                  {"optimizer.step", (float)step},
                  {"optimizer.loss_limit", 1e30f},
                  {"optimizer.norm_limit", 1e30f}};
    weft_status_code status;
    for (int i = 0; i < 4; i++)
        CHECK(weft_program_put(program, scalar[i].name, &scalar[i].value, 1));
    CHECK(weft_program_run(program));
    CHECK(weft_program_get(program, "loss", loss, 1));
out:
    return status;
}

/* Compile, bind, run: the memory of a step is known before it is reserved. */
static weft_status_code train(weft_batches *batches)
{
    weft_adamw_options adamw = WEFT_INIT(weft_adamw_options);
    weft_batch_view batch = WEFT_INIT(weft_batch_view);
    weft_graph *whole = weft_graph_create(), *g = NULL;
    weft_store *store = weft_store_create();
    weft_program *program = NULL;
    weft_status_code status = WEFT_E_MEMORY;
    if (!whole || !store)
        goto out;
    adamw.clip_norm = 1;
    weft_graph_adamw(whole, build_loss(whole), &adamw); /* gradients and update join the graph */
    CHECK(weft_graph_check(whole));                     /* the first error of building */
    CHECK(weft_graph_optimize(whole, NULL, &g));
    CHECK(weft_program_create(g, NULL, &program));
    printf("a step needs %.1f MiB\n", (double)weft_program_bytes(program) / (1 << 20));
    CHECK(weft_store_init(store, g, 1));
    CHECK(weft_program_bind(program, store, NULL));
    CHECK(weft_batches_next(batches, &batch));
    CHECK(weft_program_put(program, "video", batch.video, (int64_t)BATCH * PIXELS));
    printf("a batch: \"%s\" and %d more\n", batch.caption[0], BATCH - 1);
    for (int step = 1; step <= STEPS; step++) {
        float loss;
        CHECK(run_step(program, step, &loss));
        printf("step %d  loss %.4f\n", step, (double)loss);
    }
out:
    weft_program_free(program); /* before the graph that it borrows */
    weft_store_free(store);
    weft_graph_free(g);
    weft_graph_free(whole);
    return status;
}

static weft_status_code read_and_train(const char *shards)
{
    const weft_clip_size clip = {.batch = BATCH, .frames = FRAMES, .height = SIDE, .width = SIDE};
    weft_batch_options options = WEFT_INIT(weft_batch_options);
    weft_batches *batches;
    options.clip = &clip;
    options.clip_sizes = 1;
    options.verify = 1;
    weft_status_code status = weft_batches_open(shards, &options, &batches);
    if (status != WEFT_OK)
        return status;
    status = train(batches);
    weft_batches_close(batches);
    return status;
}

/* ---- a video from a prompt ------------------------------------------------------------------- */

typedef struct target {
    weft_video_writer *writer;
    int64_t height, width;
    uint8_t rgb[3 * 1024 * 1024]; /* a frame */
} target;

/* Frames arrive as they are decoded; nothing holds the whole video. */
static weft_status_code write_frames(void *user, int64_t prompt, int64_t first, int64_t count,
                                     const float *frames)
{
    target *to = user;
    const int64_t frame = to->height * to->width * 3;
    weft_status_code status = WEFT_OK;
    (void)prompt, (void)first;
    for (int64_t t = 0; t < count && status == WEFT_OK; t++) {
        weft_clip_to_u8(frames + t * frame, 1, to->height, to->width, false, to->rgb);
        status = weft_video_writer_rgb(to->writer, to->rgb, to->width * 3);
    }
    return status;
}

static weft_status_code generate(const char *model, const char *out)
{
    static target to;
    const char *const prompt = "a red circle moving left";
    const uint64_t seed = 7;
    weft_generate_options options = WEFT_INIT(weft_generate_options);
    weft_generate_request request = WEFT_INIT(weft_generate_request);
    weft_generator_description size = WEFT_INIT(weft_generator_description);
    weft_video_write_options video = WEFT_INIT(weft_video_write_options);
    weft_generate_callbacks callbacks = WEFT_INIT(weft_generate_callbacks);
    weft_video_generator *generator = NULL;
    weft_status_code status;
    options.steps = 4;
    options.guidance = 2;
    CHECK(weft_video_generator_open(model, &options, NULL, &generator));
    CHECK(weft_video_generator_describe(generator, &size)); /* the trained size, and the memory */
    printf("generating needs %.1f MiB\n", (double)size.bytes / (1 << 20));
    CHECK(weft_video_generator_bind(generator));
    if (size.height * size.width * 3 > (int64_t)sizeof to.rgb)
        CHECK(weft_error_set("argument-invalid", "the frames of the model are too large"));
    to.height = video.height = size.height;
    to.width = video.width = size.width;
    video.frames_per_second = size.frames_per_second;
    CHECK(weft_video_create(out, &video, &to.writer));
    callbacks.frames = write_frames;
    callbacks.user = &to;
    request.prompt = &prompt;
    request.seed = &seed;
    request.count = 1;
    CHECK(weft_video_generator_run(generator, &request, &callbacks));
    CHECK(weft_video_writer_finish(to.writer)); /* the file gets its name */
out:
    weft_video_writer_close(to.writer);
    weft_video_generator_free(generator);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: embed SHARDS MODEL OUT.mp4\n");
        return 2;
    }
    if (read_and_train(argv[1]) != WEFT_OK || generate(argv[2], argv[3]) != WEFT_OK) {
        fprintf(stderr, "embed: %s\n", weft_error_message());
        return 1;
    }
    printf("%s\n", argv[3]);
    return 0;
}
