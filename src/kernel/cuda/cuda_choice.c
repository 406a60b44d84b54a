#include "kernel/cuda/cuda_choice.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernel/cuda/cuda_choice_key.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cuda_trial.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/view.h"

#include <pthread.h>
#include <string.h>

struct weft_cuda_choice {
    char *key;
    int impl, variant;
    bool bf16; /* precision of the programs */
    void *plan;
    weft_cuda_choice *next;
};

static struct {
    pthread_mutex_t mutex;
    weft_cuda_choice *first;
    int forced; /* index plus 1; 0: none */
    bool warned[2][WEFT_CUDA_IMPLS][WEFT_OP_COUNT];
} choices = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void weft_cuda_choice_force(int impl)
{
    choices.forced = impl + 1;
}

/* ---- candidates ------------------------------------------------------------------------------ */

static bool is_own(int impl)
{
    return impl == weft_cuda_impl_own();
}

static void warn(bool bf16, int impl, weft_op op, const char *reason)
{
    const char *name = weft_cuda_impl_get(impl)->name, *op_name = weft_op_get(op)->name;
    if (choices.warned[bf16][impl][op])
        return;
    choices.warned[bf16][impl][op] = true;
    weft_warning(WEFT_MSG_KERNEL_REPLACED,
                 WEFT_AT(.key = op_name, .value = name,
                         WEFT_DETAILS(WEFT_WORD("precision", weft_cuda_precision_name(bf16)))),
                 "%s of %s in %s is replaced by the next implementation: %s", op_name, name,
                 weft_cuda_precision_name(bf16), reason);
}

/* A library computes an op only after it passed; weft's kernels also compute ops that the
 * comparison does not have. */
static bool may_compute(bool bf16, int impl, const weft_kernel_args *args)
{
    if (!weft_cuda_impl_accepts(impl, args))
        return false;
    switch (weft_cuda_verdict_get(bf16, impl, args->op)) {
    case WEFT_VERDICT_PASSED: return true;
    case WEFT_VERDICT_NONE: return is_own(impl);
    case WEFT_VERDICT_FAILED:
        if (!is_own(impl))
            warn(bf16, impl, args->op, "its results differ from the reference");
        return false;
    default: warn(bf16, impl, args->op, "the GPU did not survive it"); return false;
    }
}

static int candidates_of(bool bf16, const weft_kernel_args *args, int list[WEFT_CUDA_IMPLS])
{
    int count = 0;
    for (int i = 0; i < weft_cuda_impl_count(); i++)
        if (may_compute(bf16, i, args))
            list[count++] = i;
    return count;
}

static weft_status no_candidate(bool bf16, weft_op op)
{
    const weft_cuda_gpu *gpu;
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    return weft_error(WEFT_MSG_PARITY_FAILED,
                      WEFT_AT(.key = weft_op_get(op)->name, .value = gpu->name),
                      "the kernel of %s in %s differs from the reference on %s, and no other "
                      "implementation is left. Run weft doctor --gpu for details, and use backend "
                      "cpu.",
                      weft_op_get(op)->name, weft_cuda_precision_name(bf16), gpu->name);
}

static weft_status prepare_plan(int impl, const weft_kernel_args *args, int variant, void **plan)
{
    const weft_cuda_impl *with = weft_cuda_impl_get(impl);
    *plan = NULL;
    return with->prepare ? with->prepare(args, variant, plan) : WEFT_OK;
}

/* ---- stored choices -------------------------------------------------------------------------- */

/* The file of choices, or an empty one. */
static weft_status load(const char *path, json_t **file)
{
    json_t *key, *of;
    *file = NULL;
    WEFT_TRY(weft_cuda_verdicts_key(&key));
    if (weft_path_exists(path) && weft_json_load(path, file) == WEFT_OK)
        of = json_object_get(*file, "of");
    else
        of = NULL;
    if (!json_equal(of, key) || !json_is_object(json_object_get(*file, "choices"))) {
        json_decref(*file);
        *file = json_pack("{s:O, s:{}}", "of", key, "choices");
    }
    json_decref(key);
    return WEFT_ALLOCATED(*file, "the choices of kernels");
}

/* Uses a stored choice. False: none, or it is not a candidate any more. */
static bool use_stored(const json_t *file, const weft_kernel_args *args, const int *list, int count,
                       weft_cuda_choice *c)
{
    const json_t *stored = json_object_get(json_object_get(file, "choices"), c->key);
    const char *name = json_string_value(json_object_get(stored, "impl"));
    c->variant = (int)json_integer_value(json_object_get(stored, "variant"));
    for (int i = 0; name && i < count; i++)
        if (!strcmp(name, weft_cuda_impl_get(list[i])->name)) {
            c->impl = list[i];
            return prepare_plan(c->impl, args, c->variant, &c->plan) == WEFT_OK;
        }
    return false;
}

static weft_status store(const char *path, json_t *file, const weft_cuda_choice *c,
                         const weft_cuda_trial *trial, const int *list, int count)
{
    json_t *seconds = json_object();
    for (int i = 0; i < count; i++)
        if (trial[i].tried)
            json_object_set_new(seconds, weft_cuda_impl_get(list[i])->name,
                                json_real(trial[i].seconds));
    json_t *stored = json_pack("{s:s, s:i, s:o}", "impl", weft_cuda_impl_get(c->impl)->name,
                               "variant", c->variant, "seconds", seconds);
    WEFT_TRY(WEFT_ALLOCATED(stored, "the choices of kernels"));
    json_object_set_new(json_object_get(file, "choices"), c->key, stored);
    return weft_json_save(path, file);
}

/* ---- measurement ----------------------------------------------------------------------------- */

/* Reports an implementation that reports an error. */
static void warn_of_error(bool bf16, int impl, weft_op op)
{
    char reason[400];
    snprintf(reason, sizeof reason, "%s", weft_error_text());
    warn(bf16, impl, op, reason);
}

static weft_status measure_one(const weft_kernel_args *args, weft_cuda_bench *bench, bool bf16,
                               int impl, weft_cuda_trial *trial)
{
    WEFT_TRY(weft_cuda_trial_begin(bf16, impl, args->op));
    const weft_status_code status = weft_cuda_trial_run(bench, weft_cuda_impl_get(impl), trial);
    if (trial->gpu_failed)
        return weft_cuda_trial_stop(impl, args->op, status);
    if (status != WEFT_OK)
        warn_of_error(bf16, impl, args->op);
    WEFT_TRY(weft_cuda_trial_end(impl));
    return is_own(impl) ? status : WEFT_OK;
}

/* Measures the candidates and chooses the fastest one. */
static weft_status measure(const weft_kernel_args *args, weft_cuda_choice *c, const int *list,
                           int count, weft_cuda_trial *trial)
{
    weft_cuda_bench *bench;
    weft_status_code status = WEFT_OK;
    int best = -1;
    WEFT_TRY(weft_cuda_bench_open(args, &bench));
    for (int i = 0; i < count; i++) {
        WEFT_GO(measure_one(args, bench, c->bf16, list[i], &trial[i]));
        if (trial[i].tried && (best < 0 || trial[i].seconds < trial[best].seconds))
            best = i;
    }
    if (best < 0)
        WEFT_GO(no_candidate(c->bf16, args->op));
    c->impl = list[best];
    c->variant = trial[best].variant;
    c->plan = trial[best].plan;
    trial[best].plan = NULL;
out:
    for (int i = 0; i < count; i++)
        if (trial[i].plan)
            weft_cuda_impl_get(list[i])->release(trial[i].plan);
    weft_cuda_bench_close(bench);
    return status;
}

/* Without memory for a measurement: the first candidate that has a plan. */
static weft_status take_first(const weft_kernel_args *args, weft_cuda_choice *c, const int *list,
                              int count)
{
    weft_debug("%s is not measured: the GPU has no memory for its operands", c->key);
    for (int i = 0; i < count; i++)
        if (prepare_plan(list[i], args, 0, &c->plan) == WEFT_OK) {
            c->impl = list[i];
            return WEFT_OK;
        }
    return no_candidate(c->bf16, args->op);
}

/* Takes the stored choice, or measures and stores one. Requires both locks. */
static weft_status settle_in_file(const weft_kernel_args *args, weft_cuda_choice *c,
                                  const int *list, int count)
{
    char *path;
    json_t *file = NULL;
    weft_cuda_trial trial[WEFT_CUDA_IMPLS] = {0};
    WEFT_TRY(weft_cuda_verdicts_path("-choices.json", &path));
    weft_status_code status = WEFT_OK;
    WEFT_GO(load(path, &file));
    if (use_stored(file, args, list, count, c))
        goto out;
    status = measure(args, c, list, count, trial);
    if (status == WEFT_E_MEMORY && weft_error_class() == WEFT_MSG_MEMORY_NEEDED) {
        status = take_first(args, c, list, count);
        goto out;
    }
    WEFT_GO(status);
    WEFT_GO(store(path, file, c, trial, list, count));
out:
    json_decref(file);
    weft_free(path);
    return status;
}

static weft_status settle(const weft_kernel_args *args, weft_cuda_choice *c)
{
    int list[WEFT_CUDA_IMPLS], lock;
    const int count = candidates_of(c->bf16, args, list);
    if (!count)
        return no_candidate(c->bf16, args->op);
    c->impl = list[0];
    if (count == 1 && is_own(list[0]))
        return WEFT_OK;
    WEFT_TRY(weft_cuda_files_lock(&lock));
    const weft_status_code status = settle_in_file(args, c, list, count);
    weft_cuda_files_unlock(lock);
    return status;
}

/* ---- choices of the process ------------------------------------------------------------------ */

static weft_status force(const weft_kernel_args *args, weft_cuda_choice *c)
{
    c->impl = choices.forced - 1;
    if (!weft_cuda_impl_accepts(c->impl, args) ||
        weft_cuda_verdict_get(c->bf16, c->impl, args->op) == WEFT_VERDICT_STOPPED)
        return weft_error(WEFT_MSG_KERNEL_MISSING, WEFT_AT(.value = weft_op_get(args->op)->name),
                          "%s does not compute %s in the types and shapes of the node. Use another "
                          "implementation.",
                          weft_cuda_impl_get(c->impl)->name, weft_op_get(args->op)->name);
    return prepare_plan(c->impl, args, 0, &c->plan);
}

static void free_choice(weft_cuda_choice *c)
{
    if (c->plan)
        weft_cuda_impl_get(c->impl)->release(c->plan);
    weft_free(c->key);
    weft_free(c);
}

static weft_status create(const weft_kernel_args *args, const char *key, weft_cuda_choice **out)
{
    weft_cuda_choice *c;
    WEFT_TRY(WEFT_NEW(c, 1, "the choice of a kernel"));
    c->bf16 = weft_cuda_verdicts_bf16();
    c->key = weft_strdup(key);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(c->key, "the choice of a kernel"));
    WEFT_GO(choices.forced ? force(args, c) : settle(args, c));
    *out = c;
    return WEFT_OK;
out:
    free_choice(c);
    return status;
}

/* Requires the lock. */
static weft_status find(const weft_kernel_args *args, const char *key, weft_cuda_choice **out)
{
    weft_cuda_choice *c = choices.first;
    while (c && strcmp(c->key, key))
        c = c->next;
    if (!c) {
        WEFT_TRY(create(args, key, &c));
        c->next = choices.first;
        choices.first = c;
    }
    *out = c;
    return WEFT_OK;
}

/* True if no library accepts the args: most nodes need no key. */
static bool has_only_own(const weft_kernel_args *args)
{
    const int own = weft_cuda_impl_own();
    for (int i = 0; i < own; i++)
        if (weft_cuda_impl_accepts(i, args))
            return false;
    return weft_cuda_verdict_get(weft_cuda_verdicts_bf16(), own, args->op) != WEFT_VERDICT_FAILED;
}

weft_status weft_cuda_choose(const weft_kernel_args *args, weft_cuda_choice **choice)
{
    static weft_cuda_choice own;
    if (!choices.forced && has_only_own(args)) {
        own.impl = weft_cuda_impl_own();
        *choice = &own;
        return WEFT_OK;
    }
    weft_buf key = {0};
    weft_status_code status = WEFT_OK;
    if (choices.forced)
        weft_buf_printf(&key, "only %s: ", weft_cuda_impl_get(choices.forced - 1)->name);
    weft_buf_printf(&key, "%s ", weft_cuda_precision_name(weft_cuda_verdicts_bf16()));
    weft_cuda_choice_key(args, &key);
    WEFT_GO(weft_buf_check(&key));
    pthread_mutex_lock(&choices.mutex);
    status = find(args, key.data, choice);
    pthread_mutex_unlock(&choices.mutex);
out:
    weft_buf_free(&key);
    return status;
}

void weft_cuda_choices_forget(void)
{
    while (choices.first) {
        weft_cuda_choice *c = choices.first;
        choices.first = c->next;
        free_choice(c);
    }
    memset(choices.warned, 0, sizeof choices.warned);
}

/* ---- launches -------------------------------------------------------------------------------- */

static bool are_aligned(const weft_view *view, int count)
{
    for (int i = 0; i < count; i++)
        if (view_present(&view[i]) && (uintptr_t)view[i].data % WEFT_CUDA_ALIGNMENT)
            return false;
    return true;
}

/* Changes a choice whose implementation `failed` reported an error to the next one. */
static weft_status replace(weft_cuda_choice *c, int failed, const weft_kernel_args *args)
{
    int list[WEFT_CUDA_IMPLS];
    if (c->impl != failed)
        return WEFT_OK; /* another thread replaced it, and the next one did not fail */
    warn_of_error(c->bf16, c->impl, args->op);
    weft_cuda_verdict_set(c->bf16, c->impl, args->op, WEFT_VERDICT_FAILED);
    if (weft_cuda_verdicts_save() != WEFT_OK)
        weft_warn_error(WEFT_MSG_KERNEL_REPLACED, "the verdict is not stored");
    const int count = candidates_of(c->bf16, args, list);
    if (c->plan)
        weft_cuda_impl_get(c->impl)->release(c->plan);
    c->plan = NULL;
    return take_first(args, c, list, count);
}

weft_status_code weft_cuda_choice_launch(weft_cuda_choice *c, const weft_kernel_args *args)
{
    const bool aligned =
        are_aligned(args->in, args->in_count) && are_aligned(args->out, args->out_count);
    for (;;) {
        const int impl = c && aligned ? c->impl : weft_cuda_impl_own();
        if (is_own(impl))
            return weft_cuda_impl_get(impl)->launch(args, NULL);
        if (!weft_cuda_stream_begin(args->stream, weft_cuda_impl_get(impl)->name))
            return WEFT_OK; /* the error appears when the host waits */
        const weft_status_code failed = weft_cuda_impl_get(impl)->launch(args, c->plan);
        if (failed == WEFT_OK || choices.forced)
            return failed;
        pthread_mutex_lock(&choices.mutex);
        const weft_status_code status = replace(c, impl, args);
        pthread_mutex_unlock(&choices.mutex);
        WEFT_TRY(status);
    }
}

/* ---- for reports ----------------------------------------------------------------------------- */

static void show(const char *key, json_t *stored,
                 void (*each)(void *, const weft_cuda_stored_choice *), void *user)
{
    const char *name;
    json_t *seconds;
    weft_cuda_stored_choice c = {.key = key};
    c.impl = json_string_value(json_object_get(stored, "impl"));
    c.variant = (int)json_integer_value(json_object_get(stored, "variant"));
    json_object_foreach(json_object_get(stored, "seconds"), name,
                        seconds) if (c.count < WEFT_CUDA_IMPLS)
    {
        c.measured[c.count].impl = name;
        c.measured[c.count++].seconds = json_real_value(seconds);
    }
    if (c.impl)
        each(user, &c);
}

weft_status weft_cuda_choices_each(void (*each)(void *user, const weft_cuda_stored_choice *choice),
                                   void *user)
{
    char *path;
    const char *key;
    json_t *file, *stored;
    WEFT_TRY(weft_cuda_verdicts_path("-choices.json", &path));
    const weft_status_code status = load(path, &file);
    if (status == WEFT_OK)
        json_object_foreach(json_object_get(file, "choices"), key, stored)
            show(key, stored, each, user);
    json_decref(file);
    weft_free(path);
    return status;
}
