/* A tiny model generates videos through the public headers. */
#include <weft/weft.h>

#include "pool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define OK(call) cr_assert_eq((call), WEFT_OK, "%s", weft_error_message())

enum { FRAMES = 9, HEIGHT = 16, WIDTH = 32, FRAME = HEIGHT * WIDTH * 3, VIDEO = FRAMES * FRAME };

static char folder[] = "/tmp/weft-api-generate-XXXXXX";
static char place[300];

static const char *in_folder(const char *name)
{
    snprintf(place, sizeof place, "%s/%s", folder, name);
    return place;
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert(file);
    fputs(text, file);
    fclose(file);
}

/* Random weights and the config of one part of the model. Weights that begin with zeros are
 * shifted, too. */
static void write_part(const char *name, const char *config, int64_t frames, int64_t height,
                       int64_t width, int64_t text, const char *stem)
{
    weft_model_extent extent = WEFT_INIT(weft_model_extent);
    weft_weights_options weights = WEFT_INIT(weft_weights_options);
    weft_model *model;
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    char path[200];
    extent.frames = frames;
    extent.height = height;
    extent.width = width;
    extent.text = text;
    OK(weft_model_parse(config, &model));
    OK(weft_model_add(g, model, &extent));
    OK(weft_store_init(store, g, 5));
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        weft_tensor *t = weft_store_at(store, i);
        weft_tensor_description tensor = WEFT_INIT(weft_tensor_description);
        float *x = weft_tensor_data(t);
        int64_t count = 1;
        OK(weft_tensor_describe(t, &tensor));
        for (int d = 0; d < tensor.shape.rank; d++)
            count *= tensor.shape.dim[d];
        for (int64_t k = 0; k < count; k++)
            x[k] += 0.05f * sinf((float)(i + 1) * (float)(k + 1));
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    weights.stem = stem;
    OK(weft_store_save(store, NULL, g, path, &weights));
    snprintf(path, sizeof path, "%s/%s/config.json", folder, name);
    write_text(path, config);
    weft_store_free(store);
    weft_graph_free(g);
    weft_model_free(model);
}

static void setup(void)
{
    cr_assert(mkdtemp(folder));
    write_part("vae",
               "{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":4,\"z_dim\":4,"
               "\"num_res_blocks\":1,\"latents_mean\":[0.1,0.2,0,0],\"latents_std\":[1,2,1,1]}",
               FRAMES, 16, 16, 0, "diffusion_pytorch_model");
    write_part("transformer",
               "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":2,"
               "\"attention_head_dim\":12,\"in_channels\":4,\"out_channels\":4,\"text_dim\":8,"
               "\"freq_dim\":16,\"ffn_dim\":32,\"num_layers\":1}",
               3, 2, 4, 6, "diffusion_pytorch_model");
    write_part("text_encoder",
               "{\"_class_name\":\"WeftBytesEncoder\",\"dim\":8,\"num_heads\":2,\"num_layers\":1,"
               "\"max_length\":6}",
               0, 0, 0, 6, "model");
    write_text(in_folder("weft.json"), "{\"frames\":9,\"height\":16,\"width\":32,\"fps\":8}");
}

static void teardown(void)
{
    char command[400];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(api_generate, .init = setup, .fini = teardown);

static weft_video_generator *open_with(weft_generate_options *options)
{
    weft_video_generator *g = NULL;
    weft_generator_description d = WEFT_INIT(weft_generator_description);
    options->steps = 3;
    options->guidance = 2;
    OK(weft_video_generator_open(folder, options, NULL, &g));
    OK(weft_video_generator_describe(g, &d));
    cr_assert_gt(d.bytes, 0);
    OK(weft_video_generator_bind(g));
    return g;
}

/* Results of a run. */
typedef struct sink {
    weft_video_generator *generator;
    const char *save;      /* file for the state after step `at`; NULL: none */
    int64_t at, cancel_at; /* cancels after this step; 0: never */
    int64_t steps, frames, previews;
    int64_t latent[4];
    weft_status_code answer; /* result of `step` */
    float video[2 * VIDEO];
} sink;

static weft_status_code on_step(void *user, int64_t first, int64_t done, int64_t steps)
{
    sink *s = user;
    s->steps++;
    cr_expect_eq(steps, 3);
    cr_expect_geq(first, 0);
    if (done == s->cancel_at)
        weft_video_generator_cancel(s->generator);
    if (s->answer != WEFT_OK)
        return weft_error_set("file-io", "the sink is full");
    return s->save && done == s->at ? weft_video_generator_save(s->generator, s->save) : WEFT_OK;
}

static weft_status_code on_preview(void *user, int64_t prompt, const float *image)
{
    (void)prompt;
    cr_expect(isfinite(image[FRAME - 1]));
    ((sink *)user)->previews++;
    return WEFT_OK;
}

static weft_status_code on_latents(void *user, int64_t prompt, const int64_t *dim,
                                   const float *values)
{
    (void)prompt, (void)values;
    memcpy(((sink *)user)->latent, dim, sizeof(int64_t[4]));
    return WEFT_OK;
}

static weft_status_code on_frames(void *user, int64_t prompt, int64_t first, int64_t count,
                                  const float *values)
{
    sink *s = user;
    memcpy(s->video + prompt * VIDEO + first * FRAME, values,
           sizeof(float) * (size_t)(count * FRAME));
    s->frames += count;
    return WEFT_OK;
}

static weft_generate_request request_of(int64_t count)
{
    static const char *const prompts[] = {"red", "blue"};
    static const uint64_t seeds[] = {7, 8};
    weft_generate_request request = WEFT_INIT(weft_generate_request);
    request.count = count;
    request.prompt = prompts;
    request.seed = seeds;
    return request;
}

static weft_status_code run_request(weft_video_generator *g, sink *s,
                                    const weft_generate_request *request)
{
    weft_generate_callbacks callbacks = WEFT_INIT(weft_generate_callbacks);
    callbacks.user = s;
    callbacks.step = on_step;
    callbacks.preview = on_preview;
    callbacks.latents = on_latents;
    callbacks.frames = on_frames;
    s->generator = g;
    return weft_video_generator_run(g, request, &callbacks);
}

static weft_status_code run(weft_video_generator *g, sink *s, int64_t count)
{
    const weft_generate_request request = request_of(count);
    return run_request(g, s, &request);
}

Test(api_generate, frames_of_two_prompts)
{
    static sink a, b;
    weft_generator_description size = WEFT_INIT(weft_generator_description);
    weft_generate_options options = WEFT_INIT(weft_generate_options);
    weft_video_generator *g = open_with(&options);
    OK(weft_video_generator_describe(g, &size));
    cr_expect_eq(size.frames, FRAMES);
    cr_expect_eq(size.height, HEIGHT);
    cr_expect_eq(size.width, WIDTH);
    cr_expect_eq(size.frames_per_second, 8);
    cr_expect_eq(size.steps, 3);
    cr_expect_eq(size.latent[3], 4);
    OK(run(g, &a, 2));
    cr_expect_eq(a.steps, 2 * 3);
    cr_expect_eq(a.frames, 2 * FRAMES);
    cr_expect_eq(memcmp(a.latent, size.latent, sizeof a.latent), 0);
    for (int i = 0; i < 2 * VIDEO; i++)
        cr_assert(isfinite(a.video[i]));
    cr_expect_neq(memcmp(a.video, a.video + VIDEO, VIDEO * sizeof(float)), 0);
    OK(run(g, &b, 2)); /* bitwise identical */
    cr_expect_eq(memcmp(a.video, b.video, sizeof a.video), 0);
    weft_video_generator_free(g);
}

Test(api_generate, cancelled_runs_can_be_repeated)
{
    static sink whole, cut, again, failed;
    weft_generate_options options = WEFT_INIT(weft_generate_options);
    weft_error_info info = WEFT_INIT(weft_error_info);
    weft_video_generator *g = open_with(&options);
    OK(run(g, &whole, 1));
    cut.cancel_at = 2;
    cr_expect_eq(run(g, &cut, 1), WEFT_E_CANCELLED);
    cr_expect_eq(cut.steps, 2);
    cr_expect_eq(cut.frames, 0);
    cr_expect_eq(weft_error_get(&info), WEFT_OK);
    cr_expect_str_eq(info.id, "interrupted");
    failed.answer = WEFT_E_IO;
    cr_expect_eq(run(g, &failed, 1), WEFT_E_IO);
    cr_expect_eq(failed.steps, 1);
    OK(run(g, &again, 1));
    cr_expect_eq(memcmp(again.video, whole.video, VIDEO * sizeof(float)), 0);
    weft_video_generator_cancel(g); /* ends the next run */
    cr_expect_eq(run(g, &again, 1), WEFT_E_CANCELLED);
    weft_video_generator_free(g);
}

Test(api_generate, saved_state_resumes)
{
    static sink whole, rest;
    static const char *const others[] = {"green"};
    weft_generate_request same = request_of(1), other = same;
    char path[300];
    int64_t step = 0;
    weft_generate_options options = WEFT_INIT(weft_generate_options);
    weft_video_generator *g = open_with(&options);
    snprintf(path, sizeof path, "%s", in_folder("state.safetensors"));
    whole.save = path;
    whole.at = 2;
    OK(run(g, &whole, 1));
    weft_video_generator_free(g);
    g = open_with(&options);
    other.prompt = others;
    cr_expect_eq(weft_video_generator_resume(g, path, &other, &step), WEFT_E_ARG);
    OK(weft_video_generator_resume(g, path, &same, &step));
    cr_expect_eq(step, 2);
    OK(run(g, &rest, 1));
    cr_expect_eq(rest.steps, 1);
    cr_expect_eq(memcmp(rest.video, whole.video, VIDEO * sizeof(float)), 0);
    weft_video_generator_free(g);
}

Test(api_generate, negative_prompts_and_noise)
{
    static sink plain, negative, noise, reset;
    const char *const words[] = {"dark"};
    weft_generate_options options = WEFT_INIT(weft_generate_options);
    weft_generator_description size = WEFT_INIT(weft_generator_description);
    weft_generate_request request = request_of(1);
    weft_video_generator *g = open_with(&options);
    OK(run(g, &plain, 1));
    request.negative = words;
    OK(run_request(g, &negative, &request));
    cr_expect_neq(memcmp(negative.video, plain.video, VIDEO * sizeof(float)), 0);
    request.negative = NULL;
    OK(weft_video_generator_describe(g, &size));
    const int64_t count = size.latent[0] * size.latent[1] * size.latent[2] * size.latent[3];
    float *zeros = calloc((size_t)count, sizeof *zeros);
    request.noise = zeros;
    request.noises = 1;
    OK(run_request(g, &noise, &request));
    free(zeros);
    cr_expect_neq(memcmp(noise.video, plain.video, VIDEO * sizeof(float)), 0);
    OK(run(g, &reset, 1)); /* a request applies to its run only */
    cr_expect_eq(memcmp(reset.video, plain.video, VIDEO * sizeof(float)), 0);
    request.seed = NULL;
    cr_expect_eq(run_request(g, &reset, &request), WEFT_E_ARG);
    weft_video_generator_free(g);
}

/* Options are copied: the caller's strings change after opening. */
Test(api_generate, options)
{
    static sink a, b;
    char sampler[] = "euler", text[] = "dark";
    weft_generate_options options = WEFT_INIT(weft_generate_options);
    weft_video_generator *g = NULL, *same;
    options.sampler = sampler;
    options.negative_prompt = text;
    options.preview_steps = 1;
    g = open_with(&options);
    memset(sampler, 'x', strlen(sampler));
    memset(text, 'x', strlen(text));
    OK(run(g, &a, 1));
    cr_expect_gt(a.previews, 0);
    weft_video_generator_free(g);
    options.sampler = "euler";
    options.negative_prompt = "dark";
    same = open_with(&options);
    OK(run(same, &b, 1));
    cr_expect_eq(memcmp(a.video, b.video, VIDEO * sizeof(float)), 0);
    weft_video_generator_free(same);
    g = NULL;
    options.sampler = "no such sampler";
    cr_expect_eq(weft_video_generator_open(folder, &options, NULL, &g), WEFT_E_ARG);
    options.sampler = NULL;
    options.loras = 1;
    cr_expect_eq(weft_video_generator_open(folder, &options, NULL, &g), WEFT_E_ARG);
    const weft_lora lora = {.path = "/nowhere/lora.safetensors", .weight = 1, .expert = -1};
    options.lora = &lora;
    cr_expect_eq(weft_video_generator_open(folder, &options, NULL, &g), WEFT_E_NOT_FOUND);
    cr_expect_eq(g, NULL);
    cr_expect_neq(weft_video_generator_open("/nowhere", NULL, NULL, &g), WEFT_OK);
}

static int64_t frames_of(const char *path, uint8_t *first)
{
    weft_video_image image = WEFT_INIT(weft_video_image);
    weft_video_reader *r;
    int64_t frames = 0;
    int got;
    OK(weft_video_open(path, NULL, &r));
    for (;; frames++) {
        OK(weft_video_read(r, &image, &got));
        if (!got)
            break;
        cr_assert_eq(image.width, WIDTH);
        if (frames == 0)
            *first = image.rgb[0];
    }
    weft_video_reader_close(r);
    return frames;
}

Test(api_generate, video_file)
{
    static sink s;
    weft_generate_options options = WEFT_INIT(weft_generate_options);
    weft_generate_callbacks callbacks = WEFT_INIT(weft_generate_callbacks);
    weft_video_generator *g = open_with(&options);
    uint8_t first;
    callbacks.user = &s;
    callbacks.frames = on_frames;
    OK(weft_video_generator_write(g, "red", 7, in_folder("out.mp4"), &callbacks));
    cr_expect_eq(s.frames, FRAMES);
    cr_expect_eq(frames_of(in_folder("out.mp4"), &first), FRAMES);
    OK(weft_video_generator_write(g, "red", 7, in_folder("again.mp4"), NULL));
    cr_expect_neq(weft_video_generator_write(g, "red", 7, in_folder("out.xyz"), NULL), WEFT_OK);
    weft_video_generator_free(g);
}

static weft_status_code save_latents(void *user, int64_t prompt, const int64_t *dim,
                                     const float *values)
{
    (void)prompt, (void)dim, (void)values;
    sink *s = user;
    return weft_video_generator_save(s->generator, s->save);
}

/* Finished latents decode to the video of the run. */
Test(api_generate, latents_decode)
{
    static sink s;
    char latents[300];
    uint8_t direct = 0, decoded = 1;
    weft_generate_options options = WEFT_INIT(weft_generate_options);
    weft_generate_callbacks callbacks = WEFT_INIT(weft_generate_callbacks);
    weft_video_generator *g = open_with(&options);
    snprintf(latents, sizeof latents, "%s", in_folder("latents.safetensors"));
    s.generator = g;
    s.save = latents;
    callbacks.user = &s;
    callbacks.latents = save_latents;
    OK(weft_video_generator_write(g, "red", 7, in_folder("direct.mp4"), &callbacks));
    weft_video_generator_free(g);
    cr_expect_eq(frames_of(in_folder("direct.mp4"), &direct), FRAMES);
    OK(weft_latents_decode(latents, folder, 0, 0, in_folder("decoded.mp4")));
    cr_expect_eq(frames_of(in_folder("decoded.mp4"), &decoded), FRAMES);
    cr_expect_eq(decoded, direct);
    cr_expect_eq(weft_latents_decode(latents, folder, 1, 0, place), WEFT_E_ARG);
    cr_expect_neq(weft_latents_decode("/nowhere.safetensors", folder, 0, 0, place), WEFT_OK);
}

/* Every part of a generation gets its memory from the allocator, and returns it there. */
Test(api_generate, allocator)
{
    static sink s;
    static pool p;
    char path[300];
    weft_generate_options options = WEFT_INIT(weft_generate_options);
    snprintf(path, sizeof path, "%s", in_folder("state.safetensors"));
    OK(use_pool(&p));
    weft_video_generator *g = open_with(&options);
    s.save = path;
    s.at = 1;
    OK(run(g, &s, 1));
    OK(weft_video_generator_write(g, "red", 7, in_folder("out.mp4"), NULL));
    weft_video_generator_free(g);
    cr_expect_gt(p.calls, 1000);
    cr_expect(!p.foreign);
    cr_expect_eq(p.blocks, 0, "%lld blocks remain", (long long)p.blocks);
}

/* ---- reference images and images of an identity --------------------------------------------- */

enum { LATENTS = 3 * 4 * 4 * 4, MOST_LATENTS = 5 * 4 * 4 * 4 };

static float *latents_of(const char *source, const char *name, int count)
{
    static float values[MOST_LATENTS];
    char path[600];
    unsigned char head[10];
    snprintf(path, sizeof path, "%s/tests/golden/%s.npy", source, name);
    FILE *file = fopen(path, "rb");
    cr_assert(file && fread(head, 1, 10, file) == 10, "%s", path);
    cr_assert_eq(fseek(file, 10 + head[8] + 256 * head[9], SEEK_SET), 0);
    cr_assert_eq(fread(values, sizeof *values, MOST_LATENTS, file), count);
    fclose(file);
    return values;
}

static weft_status_code keep_latents(void *user, int64_t prompt, const int64_t *dim,
                                     const float *values)
{
    const int64_t count = dim[0] * dim[1] * dim[2] * dim[3];
    (void)prompt;
    cr_assert_leq(count, MOST_LATENTS);
    memcpy(user, values, (size_t)count * sizeof *values);
    return WEFT_OK;
}

/* Runs the model with the images of `options`, and compares `count` latents with diffusers. */
static void expect_latents(const char *source, const char *model, weft_generate_options *options,
                           const char *begin, const char *name, int count)
{
    static float made[MOST_LATENTS], noise[MOST_LATENTS];
    static const char *const prompts[] = {"a red cat walks &amp; sleeps"};
    static const uint64_t seeds[] = {1};
    weft_generate_request request = WEFT_INIT(weft_generate_request);
    weft_generate_callbacks callbacks = WEFT_INIT(weft_generate_callbacks);
    weft_video_generator *g = NULL;
    double off = 0, most = 0;
    OK(weft_video_generator_open(model, options, NULL, &g));
    OK(weft_video_generator_bind(g));
    memcpy(noise, latents_of(source, begin, count), sizeof noise);
    request.count = request.noises = 1;
    request.prompt = prompts;
    request.seed = seeds;
    request.noise = noise;
    callbacks.user = made;
    callbacks.latents = keep_latents;
    OK(weft_video_generator_run(g, &request, &callbacks));
    const float *wanted = latents_of(source, name, count);
    for (int i = 0; i < count; i++) {
        off = fmax(off, fabs((double)made[i] - (double)wanted[i]));
        most = fmax(most, fabs((double)wanted[i]));
    }
    cr_expect_leq(off, 1e-4 * most, "%s is off by %g", name, off / most);
    weft_video_generator_free(g);
}

Test(api_generate, reference_images)
{
    const char *given = getenv("SRC"), *source = given ? given : ".";
    char model[600], person[600], thing[600];
    const char *images[] = {person, thing};
    weft_generate_options options = WEFT_INIT(weft_generate_options);
    weft_video_generator *g = NULL;
    snprintf(model, sizeof model, "%s/tests/golden/pipelines/wan_vace", source);
    snprintf(person, sizeof person,
             "%s/tests/golden/pipelines/wan_vace/reference_image_references.png", source);
    snprintf(thing, sizeof thing,
             "%s/tests/golden/pipelines/wan_vace/reference_image_2_references.png", source);
    options.frames = 9;
    options.height = options.width = 32;
    options.steps = 4;
    options.guidance = 3;
    options.negative_prompt = "blurry";
    options.reference_image = images;
    options.reference_images = 2;
    expect_latents(source, model, &options, "pipelines/wan_vace/noise_references",
                   "pipelines/wan_vace/latents_references", MOST_LATENTS);
    images[1] = NULL;
    cr_expect_eq(weft_video_generator_open(model, &options, NULL, &g), WEFT_E_ARG);
    options.reference_images = -1;
    cr_expect_eq(weft_video_generator_open(model, &options, NULL, &g), WEFT_E_ARG);
    options.reference_images = 1;
    options.reference_image = NULL;
    cr_expect_eq(weft_video_generator_open(model, &options, NULL, &g), WEFT_E_ARG);
    cr_expect_eq(g, NULL);
}

Test(api_generate, images_of_an_identity)
{
    const char *given = getenv("SRC"), *source = given ? given : ".";
    char command[2400], *from = realpath(source, NULL), front[600], side[600];
    const char *more[] = {side, side, side};
    weft_generate_options options = WEFT_INIT(weft_generate_options);
    weft_video_generator *g = NULL;
    cr_assert(from);
    snprintf(command, sizeof command,
             "cd '%s' && mkdir subject && cd subject && golden='%s/tests/golden' && "
             "cp -r $golden/identity/patches identity && "
             "cp -r $golden/identity/image_encoder identity && "
             "ln -s $golden/identity/transformer . && for part in vae text_encoder tokenizer "
             "scheduler; do ln -s $golden/pipelines/wan_animate/$part .; done && "
             "echo '{\"_class_name\": \"WanPipeline\"}' >model_index.json",
             folder, from);
    cr_assert_eq(system(command), 0);
    snprintf(front, sizeof front, "%s/tests/golden/identity/front/walk.png", from);
    snprintf(side, sizeof side, "%s/tests/golden/identity/side/walk.png", from);
    options.frames = 9;
    options.height = options.width = 32;
    options.steps = 4;
    options.guidance = 3;
    options.negative_prompt = "blurry";
    options.identity = front;
    expect_latents(from, in_folder("subject"), &options, "identity/noise", "identity/latents_one",
                   LATENTS);
    options.more_identity = more;
    options.more_identities = 1;
    expect_latents(from, in_folder("subject"), &options, "identity/noise", "identity/latents_two",
                   LATENTS);
    options.more_identities = 3; /* the model takes three images */
    cr_expect_eq(weft_video_generator_open(in_folder("subject"), &options, NULL, &g), WEFT_E_ARG);
    more[0] = NULL;
    options.more_identities = 1;
    cr_expect_eq(weft_video_generator_open(in_folder("subject"), &options, NULL, &g), WEFT_E_ARG);
    more[0] = "/nowhere.png";
    cr_expect_eq(weft_video_generator_open(in_folder("subject"), &options, NULL, &g),
                 WEFT_E_NOT_FOUND);
    options.identity = NULL;
    cr_expect_eq(weft_video_generator_open(in_folder("subject"), &options, NULL, &g), WEFT_E_ARG);
    options.more_identities = -1;
    cr_expect_eq(weft_video_generator_open(in_folder("subject"), &options, NULL, &g), WEFT_E_ARG);
    cr_expect_eq(g, NULL);
    free(from);
}
