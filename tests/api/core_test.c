/* Version, sized structs, errors, callbacks and the allocator, through the public headers. */
#include <weft/weft.h>

#include "base/log.h" /* causes messages and progress */
#include "pool.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft_error_info last_error(void)
{
    weft_error_info info = WEFT_INIT(weft_error_info);
    cr_assert_eq(weft_error_get(&info), WEFT_OK);
    return info;
}

Test(api_core, version)
{
    char text[64];
    snprintf(text, sizeof text, "%d.%d.%d", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR,
             WEFT_VERSION_PATCH);
    cr_expect_str_eq(WEFT_VERSION_STRING, text);
    cr_expect_str_eq(weft_version(), WEFT_VERSION_STRING);
}

Test(api_core, memory_of_the_process)
{
    weft_memory_info info = WEFT_INIT(weft_memory_info);
    cr_expect_eq(weft_memory_describe(&info), WEFT_OK);
    cr_expect_gt(info.available, 0);
    cr_expect_gt(info.resident, 0);
    cr_expect_geq(info.peak, info.resident / 2); /* the two are not read at the same time */
}

/* ---- sized structs --------------------------------------------------------------------------- */

static weft_graph *graph_of_mean(void)
{
    weft_graph *g = weft_graph_create();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_DIMS(4));
    weft_output(g, "y", weft_mean_all(g, x));
    cr_assert_eq(weft_graph_check(g), WEFT_OK);
    return g;
}

/* The options of a newer header: the library's struct and a member that it does not know. */
typedef struct newer_options {
    weft_compile_options known;
    int64_t later;
} newer_options;

Test(api_core, options_of_a_newer_header)
{
    weft_graph *g = graph_of_mean();
    weft_program *p = NULL;
    newer_options options = {.known = {.size = sizeof options, .backend = "ref"}};
    cr_expect_eq(weft_program_create(g, &options.known, &p), WEFT_OK);
    weft_program_free(p);
    p = NULL;
    options.later = 1;
    cr_expect_eq(weft_program_create(g, &options.known, &p), WEFT_E_UNSUPPORTED);
    cr_expect_eq(p, NULL);
    cr_expect_str_eq(last_error().key, "options");
    weft_graph_free(g);
}

/* The options of an older header end early: the bytes that follow are not the library's. */
Test(api_core, options_of_an_older_header)
{
    weft_graph *g = graph_of_mean();
    weft_program *p = NULL;
    weft_compile_options options = {.size = offsetof(weft_compile_options, backend),
                                    .backend = "no backend"};
    cr_expect_eq(weft_program_create(g, &options, &p), WEFT_OK, "%s", weft_error_message());
    weft_program_free(p);
    options.size = 0;
    cr_expect_eq(weft_program_create(g, &options, &p), WEFT_E_ARG);
    weft_graph_free(g);
}

Test(api_core, results_of_other_headers)
{
    weft_tensors *file;
    cr_assert_eq(weft_tensors_open("/nowhere/file.safetensors", &file), WEFT_E_NOT_FOUND);
    weft_error_info older = {.size = offsetof(weft_error_info, message), .message = "untouched"};
    cr_expect_eq(weft_error_get(&older), WEFT_OK);
    cr_expect_str_eq(older.id, "file-not-found");
    cr_expect_str_eq(older.message, "untouched");
    struct {
        weft_error_info known;
        int64_t later;
    } newer = {.known = {.size = sizeof newer}, .later = 7};
    cr_expect_eq(weft_error_get(&newer.known), WEFT_OK);
    cr_expect_eq(newer.known.size, sizeof newer);
    cr_expect_eq(newer.later, 0);
}

/* ---- errors ---------------------------------------------------------------------------------- */

Test(api_core, error_fields)
{
    weft_program *p;
    weft_graph *g = graph_of_mean();
    weft_compile_options options = WEFT_INIT(weft_compile_options);
    cr_expect_eq(last_error().status, WEFT_OK);
    options.backend = "abacus";
    cr_expect_eq(weft_program_create(g, &options, &p), WEFT_E_ARG);
    const weft_error_info info = last_error();
    cr_expect_eq(info.status, WEFT_E_ARG);
    cr_expect_str_eq(info.id, "argument-invalid");
    cr_expect_str_eq(info.key, "backend");
    cr_expect_str_eq(info.value, "abacus");
    cr_expect_eq(info.file, NULL);
    cr_expect_eq(info.rank, -1);
    cr_expect(strstr(info.message, info.text));
    cr_expect(info.cause && *info.cause && info.remedy && *info.remedy);
    weft_graph_free(g);
}

Test(api_core, errors_of_the_caller)
{
    cr_expect_eq(weft_error_set("file-io", "the sink is full"), WEFT_E_IO);
    cr_expect_str_eq(last_error().text, "the sink is full");
    cr_expect_eq(weft_error_set("no-such-class", "x"), WEFT_E_ARG);
    cr_expect_str_eq(last_error().value, "no-such-class");
}

static void *fail_in_thread(void *failed)
{
    weft_tensors *file;
    *(int *)failed = weft_tensors_open("/nowhere/x.safetensors", &file) == WEFT_E_NOT_FOUND;
    return NULL;
}

Test(api_core, errors_belong_to_their_thread)
{
    pthread_t thread;
    int failed = 0;
    cr_assert_eq(weft_error_set("file-io", "an error of this thread"), WEFT_E_IO);
    cr_assert_eq(pthread_create(&thread, NULL, fail_in_thread, &failed), 0);
    pthread_join(thread, NULL);
    cr_expect(failed);
    cr_expect_str_eq(last_error().id, "file-io");
}

/* ---- callbacks ------------------------------------------------------------------------------- */

typedef struct heard {
    int messages, reports;
    weft_log_level level;
    char id[64], text[64], file[64], title[64], detail[64];
    int64_t line, done, total;
    int finished;
} heard;

static void hear_message(void *user, const weft_log_message *message)
{
    heard *h = user;
    h->messages++;
    h->level = message->level;
    h->line = message->line;
    snprintf(h->id, sizeof h->id, "%s", message->id);
    snprintf(h->text, sizeof h->text, "%s", message->text);
    snprintf(h->file, sizeof h->file, "%s", message->file ? message->file : "");
}

static void hear_progress(void *user, const weft_progress_report *report)
{
    heard *h = user;
    h->reports++;
    h->done = report->done;
    h->total = report->total;
    h->finished = report->finished;
    snprintf(h->title, sizeof h->title, "%s", report->title);
    snprintf(h->detail, sizeof h->detail, "%s", report->detail);
}

Test(api_core, log_callback)
{
    heard h = {0};
    weft_log_set_callback(hear_message, &h);
    weft_warning(WEFT_MSG_FILE_IO, WEFT_AT(.file = "a.txt", .line = 3), "%d bytes", 12);
    cr_expect_eq(h.messages, 1);
    cr_expect_eq(h.level, WEFT_LOG_WARN);
    cr_expect_str_eq(h.id, "file-io");
    cr_expect_str_eq(h.text, "12 bytes");
    cr_expect_str_eq(h.file, "a.txt");
    cr_expect_eq(h.line, 3);
    weft_debug("hidden");
    cr_expect_eq(h.messages, 1);
    weft_log_set_level(WEFT_LOG_DEBUG);
    weft_debug("shown");
    cr_expect_eq(h.messages, 2);
    cr_expect_str_eq(h.id, "");
    weft_log_set_level(WEFT_LOG_ERROR);
    weft_warning(WEFT_MSG_FILE_IO, WEFT_NOWHERE, "hidden");
    cr_expect_eq(h.messages, 2);
    weft_log_set_callback(NULL, NULL);
    weft_log_last("to standard error");
    cr_expect_eq(h.messages, 2);
}

Test(api_core, progress_callback)
{
    heard h = {0};
    weft_progress progress;
    weft_progress_set_callback(hear_progress, &h);
    weft_log_set_level(WEFT_LOG_ERROR); /* progress does not depend on it */
    weft_progress_begin(&progress, "reading", 5, 0);
    weft_progress_update(&progress, 2, "2 MiB");
    cr_expect_eq(h.reports, 1);
    cr_expect_str_eq(h.title, "reading");
    cr_expect_str_eq(h.detail, "2 MiB");
    cr_expect_eq(h.done, 2);
    cr_expect_eq(h.total, 5);
    cr_expect_eq(h.finished, 0);
    weft_progress_end(&progress, 5, NULL);
    cr_expect_eq(h.finished, 1);
    cr_expect_str_eq(h.detail, "");
}

/* ---- the allocator --------------------------------------------------------------------------- */

/* Builds, compiles and runs y = w x; *y is the result. */
static weft_status_code run_product(float *y)
{
    const weft_init init = {WEFT_INIT_FILL, 2};
    const float x[] = {1, 2, 3, 4};
    weft_status_code status = WEFT_E_MEMORY;
    weft_program *p = NULL;
    weft_store *store = weft_store_create();
    weft_graph *g = weft_graph_create();
    if (g && store) {
        const weft_value in = weft_input(g, "x", WEFT_F32, WEFT_DIMS(4));
        const weft_value w = weft_param(g, "w", WEFT_F32, WEFT_DIMS(4), init);
        weft_output(g, "y", weft_mean_all(g, weft_mul(g, w, in)));
        status = weft_program_create(g, NULL, &p);
    }
    if (status == WEFT_OK)
        status = weft_store_init(store, g, 1);
    if (status == WEFT_OK)
        status = weft_program_bind(p, store, NULL);
    if (status == WEFT_OK)
        status = weft_program_put(p, "x", x, 4);
    if (status == WEFT_OK)
        status = weft_program_run(p);
    if (status == WEFT_OK)
        status = weft_program_get(p, "y", y, 1);
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
    return status;
}

Test(api_core, allocator)
{
    pool p = {0};
    float y = 0;
    cr_assert_eq(use_pool(&p), WEFT_OK);
    cr_expect_eq(run_product(&y), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(y, 5);
    cr_expect_gt(p.calls, 10);
    cr_expect_eq(p.blocks, 0);
    cr_expect(!p.foreign);
    const long long calls = p.calls;
    cr_expect_eq(weft_allocator_set(NULL), WEFT_OK);
    cr_expect_eq(run_product(&y), WEFT_OK);
    cr_expect_eq(p.calls, calls);
}

Test(api_core, allocator_that_fails_once)
{
    pool p = {0};
    float y = 0;
    cr_assert_eq(use_pool(&p), WEFT_OK);
    cr_assert_eq(run_product(&y), WEFT_OK);
    const long long calls = p.calls;
    for (long long n = 1; n <= calls; n++) {
        p.calls = 0;
        p.fail_at = n;
        cr_expect_eq(run_product(&y), WEFT_E_MEMORY, "allocation %lld of %lld: %s", n, calls,
                     weft_error_message());
        cr_expect_eq(p.blocks, 0, "allocation %lld: %lld blocks remain", n, (long long)p.blocks);
    }
}

static void *allocate_nothing(void *user, size_t bytes, size_t alignment)
{
    (void)user, (void)bytes, (void)alignment;
    return NULL;
}

Test(api_core, allocator_is_set_first)
{
    pool p = {0};
    weft_allocator half = WEFT_INIT(weft_allocator);
    half.allocate = allocate_nothing;
    cr_expect_eq(weft_allocator_set(&half), WEFT_E_ARG);
    weft_graph *g = weft_graph_create();
    cr_expect_eq(use_pool(&p), WEFT_E_ARG);
    cr_expect_eq(weft_allocator_set(NULL), WEFT_E_ARG);
    weft_graph_free(g);
    cr_expect_eq(use_pool(&p), WEFT_OK);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *run_in_thread(void *y)
{
    for (int i = 0; i < 5; i++)
        if (weft_threads_set(1) != WEFT_OK || run_product(y) != WEFT_OK)
            *(float *)y = -1;
    return NULL;
}

/* Handles of different threads are independent. */
Test(api_core, threads)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    float y[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, run_in_thread, &y[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        cr_expect_eq(y[i], 5);
    }
    cr_expect_eq(weft_threads_set(0), WEFT_E_ARG);
    cr_expect_eq(weft_threads_set(3), WEFT_OK);
}
