/* The feature cache (feature_cache.h) and the guidance interval over complete sampling
 * trajectories. Trajectories in which every step refreshes are bitwise those without a cache. The
 * state of a cache belongs to one request, window, expert and CFG branch. Several ranks decide like
 * one. */
#include "base/fs.h"
#include "base/rng.h"
#include "exec/store/weights.h"
#include "generate/generator/feature_cache.h"
#include "generate/generator/generator.h"

#include "../../model_of.h"
#include "comm/comm_fake.h"
#include "generate/generator/feature_cache_rule.h"
#include "generate/generator/generator_denoise.h"
#include "kernel/far/far.h"

#include <criterion/criterion.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[] = "/tmp/weft-cache-XXXXXX";

static void make_part(const char *name, const char *config, weft_model_size size, const char *stem,
                      uint64_t seed)
{
    char path[200];
    const weft_model model = model_of(config);
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_model_build(g, &model, &size, false);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_store_init(store, g, seed), WEFT_OK);
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        weft_tensor *t = weft_store_at(store, i);
        for (int64_t k = 0; k < weft_shape_count(&t->shape); k++)
            ((float *)t->data)[k] +=
                0.05f * weft_random_normal(seed + (uint64_t)i, WEFT_RNG_TEST, (uint64_t)k);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(weft_weights_save(store, NULL, g, "", path, stem, WEFT_F32, 0), WEFT_OK, "%s",
                 weft_error_message());
    snprintf(path, sizeof path, "%s/%s/config.json", folder, name);
    cr_assert_eq(weft_file_write_atomic(path, config, (int64_t)strlen(config)), WEFT_OK);
    weft_store_free(store);
    weft_graph_free(g);
}

static void write_file(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(weft_file_write_atomic(path, text, (int64_t)strlen(text)), WEFT_OK);
}

static const char denoiser[] =
    "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":2,\"attention_head_dim\":"
    "12,"
    "\"in_channels\":4,\"out_channels\":4,\"text_dim\":8,\"freq_dim\":16,\"ffn_dim\":32,"
    "\"num_layers\":3}";

static void setup(void)
{
    const weft_model_size size = {1, 3, 2, 4, 6};
    cr_assert(mkdtemp(folder));
    make_part("vae",
              "{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":4,\"z_dim\":4,"
              "\"num_res_blocks\":1,\"latents_mean\":[0,0,0,0],\"latents_std\":[1,1,1,1]}",
              (weft_model_size){1, 9, 16, 16, 0}, "diffusion_pytorch_model", 5);
    make_part("transformer", denoiser, size, "diffusion_pytorch_model", 6);
    make_part("transformer_2", denoiser, size, "diffusion_pytorch_model", 70);
    make_part("text_encoder",
              "{\"_class_name\":\"WeftBytesEncoder\",\"dim\":8,\"num_heads\":2,\"num_layers\":1,"
              "\"max_length\":6}",
              (weft_model_size){1, 0, 0, 0, 6}, "model", 7);
    write_file("weft.json", "{\"frames\":9,\"height\":16,\"width\":32,\"fps\":8}");
    write_file("model_index.json", "{\"boundary_ratio\":0.5}");
}

static void teardown(void)
{
    (void)!weft_remove_tree(folder);
}

/* 9 frames; 17 with `window`. */
enum { CELLS = 5 * 2 * 4 * 4, PROMPTS = 2 };

typedef struct walk {
    const weft_backend *backend;
    const char *cache;
    double guidance, from, until;
    int64_t frames, window, batch, count;
    const char *sampler, *away;
    weft_comm *comm;
    const weft_parallel *parallel;
    const char *prompt[PROMPTS];
    /* what came */
    float latents[PROMPTS * CELLS];
    weft_generator_cache_stats saved;
    char told[1000];
    weft_status_code status;
} walk;

static weft_status_code keep_latents(void *user, int64_t prompt, const int64_t dim[4],
                                     const float *x)
{
    walk *w = user;
    memcpy(w->latents + prompt * CELLS, x, (size_t)(dim[0] * dim[1] * dim[2] * dim[3]) * 4);
    return WEFT_OK;
}

static weft_status_code drop(void *user, int64_t prompt, int64_t first, int64_t count,
                             const float *frames)
{
    (void)user, (void)prompt, (void)first, (void)count, (void)frames;
    return WEFT_OK;
}

static void *go(void *user)
{
    walk *w = user;
    static const uint64_t seeds[] = {7, 8};
    const weft_generator_options options = {.backend = w->backend,
                                            .steps = 10,
                                            .guidance = w->guidance > 0 ? w->guidance : 2,
                                            .batch = w->batch ? w->batch : 1,
                                            .frames = w->frames,
                                            .window = w->window,
                                            .guided = {w->from, w->until},
                                            .parallel = w->parallel,
                                            .sampler =
                                                w->sampler ? weft_sampler_find(w->sampler) : NULL,
                                            .offload_dir = w->away,
                                            .cache = w->cache};
    const weft_generator_sink sink = {.latents = keep_latents, .frames = drop, .user = w};
    weft_generator *p = NULL;
    weft_buf told = {0};
    w->status = weft_generator_open(folder, &options, w->comm, &p);
    if (w->status == WEFT_OK)
        w->status = weft_generator_bind(p);
    if (w->status == WEFT_OK)
        w->status = weft_generator_run(p, w->prompt, seeds, w->count ? w->count : 1, &sink);
    if (w->status == WEFT_OK) {
        w->saved = weft_generator_get_cache_stats(p);
        if (weft_generator_format_cache(p, &told) == WEFT_OK && told.data)
            snprintf(w->told, sizeof w->told, "%s", told.data);
    } else {
        snprintf(w->told, sizeof w->told, "%s", weft_error_message());
    }
    weft_buf_free(&told);
    weft_generator_free(p);
    return NULL;
}

static walk walked(walk w)
{
    w.prompt[0] = w.prompt[0] ? w.prompt[0] : "red";
    w.prompt[1] = w.prompt[1] ? w.prompt[1] : "blue";
    go(&w);
    cr_assert_eq(w.status, WEFT_OK, "%s", w.told);
    return w;
}

static bool same(const walk *a, const walk *b)
{
    return !memcmp(a->latents, b->latents, sizeof a->latents);
}

static double apart(const float *a, const float *b, int count)
{
    double sum = 0, norm = 0;
    for (int i = 0; i < count; i++) {
        sum += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(sum / norm);
}

Test(cache, always_refreshed_is_the_walk_without, .init = setup, .fini = teardown)
{
    static const char *const rules[] = {"block:0", "every:1", "attention:1", "every:2,last=10"};
    const walk off = walked((walk){0}), windows = walked((walk){.frames = 17, .window = 9});
    cr_expect_str_empty(off.told);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const walk w = walked((walk){.cache = rules[i]}),
                   v = walked((walk){.cache = rules[i], .frames = 17, .window = 9});
        cr_expect(same(&w, &off), "%s: %g", rules[i], apart(w.latents, off.latents, CELLS));
        cr_expect(same(&v, &windows), "%s with windows", rules[i]);
        cr_expect_eq(w.saved.reused, 0);
        cr_expect_eq(w.saved.runs, 10);
        cr_expect_eq(v.saved.runs, 20);
    }
}

/* States of the programs in memory of a device. */
Test(cache, far_leaves_out_the_same_steps, .init = setup, .fini = teardown)
{
    static const char *const rules[] = {"attention:3,warm=0", "block:10"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const walk near = walked((walk){.cache = rules[i], .frames = 17, .window = 9}),
                   far = walked((walk){
                       .backend = &weft_backend_far, .cache = rules[i], .frames = 17, .window = 9});
        cr_expect(same(&near, &far), "%s", rules[i]);
        cr_expect_gt(far.saved.reused, 0);
        cr_expect_eq(far.saved.reused, near.saved.reused);
    }
}

Test(cache, steps_are_left_out, .init = setup, .fini = teardown)
{
    const walk off = walked((walk){0});
    static const char *const rules[] = {"every:2", "attention:3,warm=0", "block:10",
                                        "block:10,run=1"};
    /* two experts of five steps each: both begin with a step of their own, and end with one */
    static const char *const steps[] = {"R.R.R", "R..RR", "R...R", "R.R.R"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const walk w = walked((walk){.cache = rules[i]});
        const char *line = strstr(w.told, "steps "), *second = strstr(w.told, "transformer_2");
        cr_assert(line && second, "%s", w.told);
        cr_expect(!strncmp(line + 6, steps[i], 5), "%s", w.told);
        cr_expect(!strncmp(strstr(second, "steps ") + 6, steps[i], 5), "%s", w.told);
        cr_expect(w.saved.predicted > 1.05, "%s: %g", rules[i], w.saved.predicted);
        cr_expect(!same(&w, &off));
        cr_expect(apart(w.latents, off.latents, CELLS) < 0.5, "%s: %g", rules[i],
                  apart(w.latents, off.latents, CELLS));
    }
}

/* The second of two prompts is denoised as it is alone, bitwise in two runs. */
Test(cache, state_is_of_one_request, .init = setup, .fini = teardown)
{
    const walk both = walked((walk){.cache = "block:0.6", .count = 2}),
               again = walked((walk){.cache = "block:0.6", .count = 2}),
               first = walked((walk){.cache = "block:0.6"});
    cr_expect(same(&both, &again));
    cr_expect(!memcmp(both.latents, first.latents, CELLS * 4));
    cr_expect_gt(both.saved.reused, 0);
    const walk other = walked((walk){.cache = "block:0.6", .count = 2, .prompt = {"green"}});
    cr_expect(!memcmp(both.latents + CELLS, other.latents + CELLS, CELLS * 4));
    cr_expect(memcmp(both.latents, other.latents, CELLS * 4));
}

/* Each window has its own. */
Test(cache, windows_do_not_see_one_another, .init = setup, .fini = teardown)
{
    const walk off = walked((walk){.frames = 17, .window = 9}),
               w = walked((walk){.cache = "every:2", .frames = 17, .window = 9});
    cr_expect_eq(w.saved.runs, 20);
    cr_expect_eq(w.saved.reused, 8);
    cr_expect(!same(&w, &off) && apart(w.latents, off.latents, CELLS) < 0.5, "%g",
              apart(w.latents, off.latents, CELLS));
}

/* A letter each time that the model is asked: heun does so twice in a step but the last. */
Test(cache, samplers_that_ask_twice_leave_two_letters, .init = setup, .fini = teardown)
{
    const walk w = walked((walk){.cache = "every:2", .sampler = "heun"});
    int64_t letters = 0;
    for (const char *at = w.told; (at = strstr(at, "steps ")); at++)
        letters += (int64_t)strspn(at + 6, "R.");
    cr_expect_eq(letters, 19, "%s", w.told);
    cr_expect_eq(w.saved.runs, 19);
}

/* Caches that grow with the length of a video are in files: predicted and measured memory for 30
 * windows is that for 3, and latents are bitwise those of caches in memory. */
typedef struct taken {
    int64_t told, heap, mapped;
} taken;

static taken bound(int64_t windows, const char *away)
{
    const weft_generator_options options = {.steps = 4,
                                            .guidance = 2,
                                            .batch = 1,
                                            .frames = 9 + (windows - 1) * 8,
                                            .window = 9,
                                            .cache = "block:0.6",
                                            .offload_dir = away};
    weft_generator *p = NULL;
    cr_assert_eq(weft_generator_open(folder, &options, NULL, &p), WEFT_OK, "%s",
                 weft_error_message());
    const struct mallinfo2 before = mallinfo2();
    cr_assert_eq(weft_generator_bind(p), WEFT_OK, "%s", weft_error_message());
    const struct mallinfo2 after = mallinfo2();
    const taken t = {weft_generator_bytes(p),
                     (int64_t)(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd),
                     weft_generator_offloaded_bytes(p)};
    weft_generator_free(p);
    return t;
}

Test(cache, what_grows_with_windows_is_no_memory, .init = setup, .fini = teardown)
{
    (void)bound(3, folder); /* one-time allocations of libraries */
    const taken few = bound(3, folder), many = bound(30, folder), held = bound(30, NULL);
    cr_log_info("3 windows: %ld told, %ld of the heap, %ld of files; 30: %ld, %ld, %ld; without "
                "files %ld, %ld",
                few.told, few.heap, few.mapped, many.told, many.heap, many.mapped, held.told,
                held.heap);
    cr_expect_eq(few.told, many.told);
    cr_expect_lt(labs(many.heap - few.heap), 8192, "%ld and %ld", few.heap, many.heap);
    cr_expect_gt(many.mapped, 8 * few.mapped);
    cr_expect_eq(held.mapped, 0);
    cr_expect_eq(held.told, many.told + many.mapped);
    const walk in_files =
                   walked((walk){.frames = 17, .window = 9, .cache = "block:0.6", .away = folder}),
               in_memory = walked((walk){.frames = 17, .window = 9, .cache = "block:0.6"});
    cr_expect(same(&in_files, &in_memory));
}

/* Outside of the interval the prediction is the conditional one; inside, guidance applies. */
Test(cache, guidance_has_an_interval, .init = setup, .fini = teardown)
{
    const walk all = walked((walk){0}), none = walked((walk){.guidance = 1}),
               never = walked((walk){.from = 0.99, .until = 1}),
               half = walked((walk){.until = 0.5}),
               cached = walked((walk){.until = 0.5, .cache = "block:0"});
    cr_expect(same(&never, &none), "%g", apart(never.latents, none.latents, CELLS));
    cr_expect(!same(&half, &none) && !same(&half, &all));
    cr_expect(apart(half.latents, all.latents, CELLS) < apart(none.latents, all.latents, CELLS));
    cr_expect(same(&half, &cached));
    const walk reused = walked((walk){.until = 0.3, .cache = "every:2"});
    cr_expect(strstr(reused.told, "without guidance"), "%s", reused.told);
}

/* All ranks of each layout decide like one rank. */
Test(cache, ranks_decide_together, .init = setup, .fini = teardown)
{
    static const struct layout {
        const char *name;
        weft_parallel parallel;
        const char *cache;
        double until; /* of guidance */
    } layouts[] = {
        {"cfg", {.cfg = 2, .dp = 1, .fsdp = 1, .tp = 1, .ep = 1, .cp = 1, .pp = 1}, "block:0.6"},
        {"tp", {.cfg = 1, .dp = 1, .fsdp = 1, .tp = 2, .ep = 1, .cp = 1, .pp = 1}, "block:0.6"},
        {"sequence",
         {.cfg = 1, .dp = 1, .fsdp = 1, .tp = 2, .sequence = true, .ep = 1, .cp = 1, .pp = 1},
         "block:0.6"},
        {"cfg and an interval",
         {.cfg = 2, .dp = 1, .fsdp = 1, .tp = 1, .ep = 1, .cp = 1, .pp = 1},
         "block:0.6",
         0.3},
        {"cp", {.cfg = 1, .dp = 1, .fsdp = 1, .tp = 1, .ep = 1, .cp = 2, .pp = 1}, "block:0.6"},
        {"tp", {.cfg = 1, .dp = 1, .fsdp = 1, .tp = 2, .ep = 1, .cp = 1, .pp = 1}, "attention:2"},
        {"fsdp", {.cfg = 1, .dp = 1, .fsdp = 2, .tp = 1, .ep = 1, .cp = 1, .pp = 1}, "every:2"},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const walk one = walked((walk){.cache = layouts[i].cache, .until = layouts[i].until});
        weft_parallel parallel = layouts[i].parallel;
        static walk rank[2];
        weft_comm *comm[2];
        pthread_t thread[2];
        parallel.overlap = weft_comm_overlap_default;
        cr_assert_eq(weft_comm_open_threads(2, comm), WEFT_OK);
        for (int r = 0; r < 2; r++) {
            rank[r] = (walk){.cache = layouts[i].cache,
                             .until = layouts[i].until,
                             .comm = comm[r],
                             .parallel = &parallel,
                             .prompt = {"red", "blue"}};
            pthread_create(&thread[r], NULL, go, &rank[r]);
        }
        for (int r = 0; r < 2; r++)
            pthread_join(thread[r], NULL);
        for (int r = 0; r < 2; r++) {
            cr_assert_eq(rank[r].status, WEFT_OK, "%s: %s", layouts[i].name, rank[r].told);
            cr_expect_eq(rank[r].saved.reused, one.saved.reused, "%s", layouts[i].name);
            weft_comm_free(comm[r]);
        }
        cr_expect_gt(one.saved.reused, 0);
        cr_expect_lt(apart(rank[0].latents, one.latents, CELLS - CELLS / 5 * 2), 1e-5, "%s: %g",
                     layouts[i].name, apart(rank[0].latents, one.latents, CELLS - CELLS / 5 * 2));
    }
}

Test(cache, rules_are_read_or_refused)
{
    const weft_model wan = model_of(denoiser);
    weft_model large, sparse;
    cr_assert_eq(weft_model_open("wan-1.3b", &large), WEFT_OK);
    cr_assert_eq(weft_model_default("SparseUMMDiT", &sparse), WEFT_OK);
    weft_feature_cache_rule r;
    bool on = true;
    cr_expect_eq(weft_feature_cache_choose("off", &wan, 0, &r, &on), WEFT_OK);
    cr_expect(!on);
    cr_expect_eq(weft_feature_cache_choose("fast", &wan, 0, &r, &on), WEFT_OK);
    cr_expect(on && r.signal == WEFT_SIGNAL_BLOCK && !r.adds);
    cr_expect_eq(weft_feature_cache_choose("fast", &large, 0, &r, &on), WEFT_OK);
    cr_expect(r.signal == WEFT_SIGNAL_TIME && r.adds && r.threshold == 0.1 && r.warm == 0.1);
    cr_expect_eq(weft_feature_cache_choose("teacache:0.07,run=2,warm=0", &large, 0, &r, &on),
                 WEFT_OK);
    cr_expect(r.threshold == 0.07 && r.run == 2 && r.warm == 0 && r.coefficient[4] != 0);
    cr_expect_eq(weft_feature_cache_choose("teacache:0.07", &wan, 0, &r, &on), WEFT_E_UNSUPPORTED);
    cr_expect_eq(weft_error_class(), WEFT_MSG_CACHE_UNSUPPORTED, "%s", weft_error_message());
    cr_expect_str_eq(weft_error_fields()->key, "--feature-cache");
    cr_expect_str_eq(weft_error_fields()->value, "teacache:0.07");
    cr_expect(strstr(weft_error_text(), "block:0.08"), "%s", weft_error_text());
    cr_expect_eq(weft_feature_cache_choose("conservative", &sparse, 0, &r, &on),
                 WEFT_E_UNSUPPORTED);
    cr_expect_eq(weft_error_class(), WEFT_MSG_CACHE_UNSUPPORTED, "%s", weft_error_message());
    cr_expect_str_eq(weft_error_fields()->value, "conservative");
    cr_expect(strstr(weft_error_text(), "SparseUMMDiT"), "%s", weft_error_text());
    cr_expect(strstr(weft_error_text(), "WanTransformer3DModel"), "%s", weft_error_text());
    static const char *const measured[] = {
        "HeliosTransformer3DModel",       "WanAnimateTransformer3DModel",
        "SkyReelsV2Transformer3DModel",   "ChronoEditTransformer3DModel",
        "LongCatVideoTransformer3DModel", "MotifVideoTransformer3DModel",
        "SanaVideoTransformer3DModel",    "Kandinsky5Transformer3DModel",
        "LatteTransformer3DModel",        "OpenSoraT2V_v1_3"};
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        weft_feature_cache_rule slow;
        weft_model m;
        cr_assert_eq(weft_model_default(measured[i], &m), WEFT_OK, "%s", measured[i]);
        cr_expect_eq(weft_feature_cache_choose("conservative", &m, 0, &slow, &on), WEFT_OK, "%s",
                     measured[i]);
        cr_expect_eq(weft_feature_cache_choose("fast", &m, 0, &r, &on), WEFT_OK, "%s", measured[i]);
        cr_expect(r.signal == WEFT_SIGNAL_BLOCK && slow.threshold > 0 &&
                      slow.threshold < r.threshold && r.threshold <= 0.2,
                  "%s", measured[i]);
    }
    static const char *const wrong[] = {
        "quick",           "block",     "block:",     "block:x",    "block:-1",
        "every:0",         "every:2.5", "blocks:0.1", "block:0.1,", "block:0.1,warm=2",
        "block:0.1,foo=2", "block:nan", "every:2 "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_eq(weft_feature_cache_choose(wrong[i], &wan, 0, &r, &on), WEFT_E_ARG, "%s",
                     wrong[i]);
}
