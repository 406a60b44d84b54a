/* A program around weft as a library: reads clips from shards, trains a small model of its own for
 * three steps on a batch of them, and generates a video with a model that `weft train` made.
 *
 *   cc -std=c17 embed.c -o embed $(pkg-config --cflags --libs weft)
 *   ./embed SHARDS MODEL OUT.mp4                                                                  */
#include <weft.h>

#include <stdio.h>
#include <string.h>

enum { BATCH = 4, FRAMES = 5, SIDE = 16, PIXELS = FRAMES * SIDE * SIDE * 3, CODE = 24, STEPS = 3 };

/* ---- a model: every clip through a code of 24 numbers and back ------------------------------ */

/* video (B,T,Y,X,3) -> mean squared error of the reconstruction. The graph is mathematics over whole
 * tensors: it knows no memory, threads or ranks. */
static weft_value build_loss(weft_graph *g)
{
    const weft_value video =
        weft_input(g, "video", WEFT_F32, WEFT_SHAPE(BATCH, FRAMES, SIDE, SIDE, 3));
    const weft_value x = weft_reshape(g, video, WEFT_SHAPE(BATCH, PIXELS));
    weft_value y = weft_nn_linear(g, "encode", x, CODE, WEFT_LINEAR_XAVIER);
    y = weft_nn_linear(g, "decode", weft_gelu_tanh(g, y), PIXELS, WEFT_LINEAR_XAVIER);
    return weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, y, x)));
}

/* Compile, bind, run: the memory of a step is known before any of it is reserved. */
static weft_status train(weft_loader *loader)
{
    const weft_optimizer_config adamw = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip_norm = 1};
    const weft_pass_setup passes = {0};
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_program *program = NULL;
    weft_batch batch;
    char bytes[32];
    weft_status_code status =
        g && store ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "no memory for a graph");
    WEFT_GO(status);
    weft_optimizer_build(g, build_loss(g), &adamw); /* gradients and update join the graph */
    WEFT_GO(weft_graph_check(g));                   /* the first mistake of all of the above */
    WEFT_GO(weft_passes_run(WEFT_PASS_RANK, &passes, false, &g, NULL));
    WEFT_GO(weft_program_compile(g, &(weft_program_options){0}, &program));
    printf("a step takes %s\n", weft_format_bytes(weft_program_bytes(program), bytes));
    WEFT_GO(weft_store_init(store, g, 1));
    WEFT_GO(weft_program_bind(program, store, NULL));
    WEFT_GO(weft_loader_next(loader, &batch));
    memcpy(weft_program_input(program, "video")->data, batch.video, sizeof(float) * BATCH * PIXELS);
    printf("a batch: \"%s\" and %d more\n", batch.caption[0], BATCH - 1);
    for (int step = 0; step < STEPS; step++) {
        const struct {
            const char *name;
            float value;
        } scalar[] = {{"optimizer.lr", 1e-3f},
                      {"optimizer.step", (float)(step + 1)},
                      {"optimizer.loss_limit", 1e30f},
                      {"optimizer.norm_limit", 1e30f}};
        for (int i = 0; i < 4; i++)
            *(float *)weft_program_input(program, scalar[i].name)->data = scalar[i].value;
        WEFT_GO(weft_program_run(program));
        printf("step %d  loss %.4f\n", step + 1,
               (double)*(float *)weft_program_output(program, "loss")->data);
    }
out:
    weft_program_free(program); /* before the graph that it borrows */
    weft_store_free(store);
    weft_graph_free(g);
    return status;
}

static weft_status read_and_train(const char *shards)
{
    weft_bucket bucket = {.batch = BATCH, .frames = FRAMES, .height = SIDE, .width = SIDE};
    const weft_loader_config config = {
        .shards = shards, .buckets = {1, &bucket}, .threads = 1, .prefetch = 2, .verify = true};
    weft_loader *loader;
    WEFT_TRY(weft_loader_open(&config, 0, 1, NULL, 0, &loader));
    const weft_status_code status = train(loader);
    weft_loader_close(loader);
    return status;
}

/* ---- a video from a prompt ------------------------------------------------------------------- */

typedef struct target {
    weft_video_writer *writer;
    const weft_generator_options *size;
    uint8_t *rgb; /* a frame */
} target;

/* Frames arrive as they are decoded; nothing holds the whole video. */
static weft_status_code write_frames(void *user, int64_t prompt, int64_t first, int64_t count,
                                     const float *frames)
{
    const target *to = user;
    const int64_t frame = to->size->height * to->size->width * 3;
    (void)prompt, (void)first;
    for (int64_t t = 0; t < count; t++) {
        weft_clip_to_u8(frames + t * frame, 1, to->size->height, to->size->width, false, to->rgb);
        WEFT_TRY(weft_video_writer_rgb(to->writer, to->rgb, to->size->width * 3));
    }
    return WEFT_OK;
}

static weft_status generate(const char *model, const char *out)
{
    const weft_generator_options wish = {.steps = 4, .guidance = 2, .batch = 1};
    const char *const prompt[] = {"a red circle moving left"};
    weft_generator *generator = NULL;
    target to = {0};
    char bytes[32];
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_generator_open(model, &wish, NULL, &generator));
    printf("generating takes %s\n", weft_format_bytes(weft_generator_bytes(generator), bytes));
    WEFT_GO(weft_generator_bind(generator));
    to.size = weft_generator_settings(generator); /* what the model was trained on */
    to.rgb = weft_alloc(to.size->height * to.size->width * 3);
    if (!to.rgb)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "no memory for a frame"));
    const weft_video_writer_options video = {
        .width = to.size->width, .height = to.size->height, .fps = weft_generator_fps(generator)};
    WEFT_GO(weft_video_writer_open(out, &video, &to.writer));
    const weft_generator_sink sink = {.frames = write_frames, .user = &to};
    WEFT_GO(weft_generator_run(generator, prompt, (const uint64_t[]){7}, 1, &sink));
    status = weft_video_writer_finish(to.writer); /* only now the file has its name */
out:
    weft_video_writer_close(to.writer);
    weft_free(to.rgb);
    weft_generator_free(generator);
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
