#include "kernel/cuda/cuda_choice.h"

#include "base/log.h"
#include "base/memory.h"
#include "kernel/cuda/cuda_choice_file.h"
#include "kernel/cuda/cuda_choice_key.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cuda_trial.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/view.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* What computes the op. Does not change, and stays until the choice is freed, because another
 * thread may launch its plan. */
typedef struct selection {
    int impl;
    weft_cuda_plan plan;
    struct selection *earlier; /* that it replaced */
} selection;

struct weft_cuda_choice {
    char *key;
    weft_products products; /* of the programs */
    _Atomic(selection *) now;
    bool failed[WEFT_CUDA_IMPLS]; /* in a launch of this shape; requires the lock */
    weft_cuda_choice *next;
};

/* Choices of the process. */
typedef struct choice_list {
    pthread_mutex_t mutex;
    weft_cuda_choice *first;
} choice_list;

static struct {
    choice_list usual, forced; /* forced ones are made while the files are locked */
    _Atomic(weft_cuda_compare_fn *) compare;
    bool warned[WEFT_PRODUCTS_COUNT][WEFT_CUDA_IMPLS][WEFT_OP_COUNT];
} choices = {.usual.mutex = PTHREAD_MUTEX_INITIALIZER, .forced.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Index plus 1; 0: none. Of a thread, because others prepare programs during a comparison. */
static _Thread_local int forced;

void weft_cuda_choice_force(int impl)
{
    forced = impl + 1;
}

void weft_cuda_choice_compare(weft_cuda_compare_fn *compare)
{
    choices.compare = compare;
}

/* ---- candidates ------------------------------------------------------------------------------ */

static bool is_own(int impl)
{
    return impl == weft_cuda_impl_own();
}

static void warn(weft_products products, int impl, weft_op op, const char *reason)
{
    const char *name = weft_cuda_impl_get(impl)->name, *op_name = weft_op_get(op)->name;
    if (choices.warned[products][impl][op])
        return;
    choices.warned[products][impl][op] = true;
    weft_warning(WEFT_MSG_KERNEL_REPLACED,
                 WEFT_AT(.key = op_name, .value = name,
                         WEFT_DETAILS(WEFT_WORD("precision", weft_cuda_precision_name(products)))),
                 "%s of %s in %s is replaced by the next implementation: %s", op_name, name,
                 weft_cuda_precision_name(products), reason);
}

/* Reports an implementation that fails for one shape. */
static void warn_of_shape(const weft_cuda_choice *c, int impl, weft_op op, const char *reason)
{
    const char *name = weft_cuda_impl_get(impl)->name;
    weft_warning(WEFT_MSG_KERNEL_REPLACED,
                 WEFT_AT(.key = weft_op_get(op)->name, .value = name,
                         WEFT_DETAILS(WEFT_WORD("shape", c->key))),
                 "%s fails for %s and is replaced by the next implementation: %s", name, c->key,
                 reason);
}

/* A library computes an op only after it passed; weft's kernels also compute ops that the
 * comparison does not have. */
static bool may_compute(const weft_cuda_choice *c, int impl, const weft_kernel_args *args)
{
    const weft_products products = c->products;
    const weft_cuda_impl *with = weft_cuda_impl_get(impl);
    if (c->failed[impl] || !weft_cuda_impl_accepts(impl, args) || (with->pays && !with->pays(args)))
        return false;
    switch (weft_cuda_verdict_get(products, impl, args->op)) {
    case WEFT_VERDICT_PASSED: return true;
    case WEFT_VERDICT_NONE: return is_own(impl);
    case WEFT_VERDICT_FAILED:
        if (!is_own(impl))
            warn(products, impl, args->op, "its results differ from the reference");
        return false;
    default: warn(products, impl, args->op, "the GPU did not survive it"); return false;
    }
}

static int candidates_of(const weft_cuda_choice *c, const weft_kernel_args *args,
                         int list[WEFT_CUDA_IMPLS])
{
    int count = 0;
    for (int i = 0; i < weft_cuda_impl_count(); i++)
        if (may_compute(c, i, args))
            list[count++] = i;
    return count;
}

static weft_status no_candidate(weft_products products, weft_op op)
{
    const weft_cuda_gpu *gpu;
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    return weft_error(WEFT_MSG_PARITY_FAILED,
                      WEFT_AT(.key = weft_op_get(op)->name, .value = gpu->name),
                      "the kernel of %s in %s differs from the reference on %s, and no other "
                      "implementation is left. Run weft doctor --gpu for details, and use backend "
                      "cpu.",
                      weft_op_get(op)->name, weft_cuda_precision_name(products), gpu->name);
}

/* Replaces the selection of the choice. Takes the plan, also if it fails. */
static weft_status select_plan(weft_cuda_choice *c, int impl, weft_cuda_plan plan)
{
    selection *s;
    if (WEFT_NEW(s, 1, "the choice of a kernel") != WEFT_OK) {
        if (plan.plan)
            weft_cuda_impl_get(impl)->release(plan.plan);
        return WEFT_E_MEMORY;
    }
    *s = (selection){.impl = impl, .plan = plan, .earlier = c->now};
    c->now = s;
    return WEFT_OK;
}

/* Selects the first usable plan of an implementation from `variant` on. */
static weft_status prepare_plan(weft_cuda_choice *c, int impl, const weft_kernel_args *args,
                                int variant)
{
    const weft_cuda_impl *with = weft_cuda_impl_get(impl);
    weft_cuda_plan plan = {0};
    int count;
    if (with->prepare)
        WEFT_TRY(with->prepare(args, variant, 1, &plan, &count));
    return select_plan(c, impl, plan);
}

/* ---- stored choices -------------------------------------------------------------------------- */

static int impl_of(const char *name)
{
    for (int i = 0; name && i < weft_cuda_impl_count(); i++)
        if (!strcmp(name, weft_cuda_impl_get(i)->name))
            return i;
    return -1;
}

static void read_failed(const json_t *stored, weft_cuda_choice *c)
{
    const json_t *list = json_object_get(stored, "failed");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const int impl = impl_of(json_string_value(json_array_get(list, i)));
        if (impl >= 0)
            c->failed[impl] = true;
    }
}

/* Uses a stored choice. False: none, or it is not a candidate any more. */
static bool use_stored(const json_t *stored, const weft_kernel_args *args, weft_cuda_choice *c)
{
    const int impl = impl_of(json_string_value(json_object_get(stored, "impl")));
    const int variant = (int)json_integer_value(json_object_get(stored, "variant"));
    return impl >= 0 && may_compute(c, impl, args) &&
           prepare_plan(c, impl, args, variant) == WEFT_OK;
}

static json_t *failed_json(const weft_cuda_choice *c)
{
    json_t *list = json_array();
    for (int i = 0; i < weft_cuda_impl_count(); i++)
        if (c->failed[i])
            json_array_append_new(list, json_string(weft_cuda_impl_get(i)->name));
    return list;
}

/* Takes the measured seconds by implementation. Requires both locks. */
static weft_status store(const weft_cuda_choice *c, json_t *seconds)
{
    const selection *s = c->now;
    json_t *stored = json_pack("{s:s, s:s, s:i, s:o, s:o}", "key", c->key, "impl",
                               weft_cuda_impl_get(s->impl)->name, "variant", s->plan.variant,
                               "seconds", seconds, "failed", failed_json(c));
    WEFT_TRY(WEFT_ALLOCATED(stored, "the choices of kernels"));
    return weft_cuda_choice_file_add(stored);
}

static json_t *seconds_json(const weft_cuda_trial *trial, const int *list, int count)
{
    json_t *seconds = json_object();
    for (int i = 0; i < count; i++)
        if (trial[i].tried)
            json_object_set_new(seconds, weft_cuda_impl_get(list[i])->name,
                                json_real(trial[i].seconds));
    return seconds;
}

/* ---- measurement ----------------------------------------------------------------------------- */

/* Reports an implementation that reports an error. */
static void warn_of_error(weft_products products, int impl, weft_op op)
{
    char reason[400];
    snprintf(reason, sizeof reason, "%s", weft_error_text());
    warn(products, impl, op, reason);
}

/* Sets failed[impl] if results differ from weft's own kernel, whose bits they should have. */
static weft_status measure_one(const weft_kernel_args *args, weft_cuda_bench *bench,
                               weft_cuda_choice *c, int impl, weft_cuda_trial *trial)
{
    const weft_cuda_impl *with = weft_cuda_impl_get(impl);
    WEFT_TRY(weft_cuda_trial_begin(c->products, impl, args->op));
    weft_status_code status = WEFT_OK;
    if (with->is_exact)
        status = weft_cuda_trial_compare(bench, with, trial);
    if (status == WEFT_OK && !trial->differs)
        status = weft_cuda_trial_run(bench, with, trial);
    if (trial->gpu_failed)
        return weft_cuda_trial_stop(impl, args->op, status);
    if (status != WEFT_OK)
        warn_of_error(c->products, impl, args->op);
    if (trial->differs) {
        warn_of_shape(c, impl, args->op, "its results differ from weft's own kernel");
        c->failed[impl] = true;
    }
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
        WEFT_GO(measure_one(args, bench, c, list[i], &trial[i]));
        if (trial[i].tried && (best < 0 || trial[i].seconds < trial[best].seconds))
            best = i;
    }
    if (best < 0)
        WEFT_GO(no_candidate(c->products, args->op));
    const weft_cuda_plan plan = trial[best].plan;
    trial[best].plan.plan = NULL;
    WEFT_GO(select_plan(c, list[best], plan));
out:
    for (int i = 0; i < count; i++)
        if (trial[i].plan.plan)
            weft_cuda_impl_get(list[i])->release(trial[i].plan.plan);
    weft_cuda_bench_close(bench);
    return status;
}

/* The first candidate that has a plan. */
static weft_status take_first(const weft_kernel_args *args, weft_cuda_choice *c)
{
    int list[WEFT_CUDA_IMPLS];
    const int count = candidates_of(c, args, list);
    for (int i = 0; i < count; i++)
        if (prepare_plan(c, list[i], args, 0) == WEFT_OK)
            return WEFT_OK;
    return no_candidate(c->products, args->op);
}

static weft_status measure_and_store(const weft_kernel_args *args, weft_cuda_choice *c)
{
    int list[WEFT_CUDA_IMPLS];
    weft_cuda_trial trial[WEFT_CUDA_IMPLS] = {0};
    const int count = candidates_of(c, args, list);
    const weft_status_code status = measure(args, c, list, count, trial);
    if (status == WEFT_E_MEMORY && weft_error_class() == WEFT_MSG_MEMORY_NEEDED) {
        weft_debug("%s is not measured: the GPU has no memory for its operands", c->key);
        return take_first(args, c);
    }
    WEFT_TRY(status);
    return store(c, seconds_json(trial, list, count));
}

/* Takes the stored choice, or measures and stores one. Requires both locks. */
static weft_status settle_in_file(const weft_kernel_args *args, weft_cuda_choice *c)
{
    const json_t *stored;
    WEFT_TRY(weft_cuda_choice_file_find(c->key, &stored));
    read_failed(stored, c);
    return use_stored(stored, args, c) ? WEFT_OK : measure_and_store(args, c);
}

static weft_status settle(const weft_kernel_args *args, weft_cuda_choice *c)
{
    int list[WEFT_CUDA_IMPLS], lock;
    const int count = candidates_of(c, args, list);
    if (!count)
        return no_candidate(c->products, args->op);
    if (count == 1 && is_own(list[0]))
        return prepare_plan(c, list[0], args, 0);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_cuda_files_lock(&lock));
    WEFT_GO(settle_in_file(args, c));
out:
    weft_cuda_files_unlock(lock);
    return status;
}

/* ---- choices of the process ------------------------------------------------------------------ */

static weft_status force(const weft_kernel_args *args, weft_cuda_choice *c)
{
    const int impl = forced - 1;
    if (!weft_cuda_impl_accepts(impl, args) ||
        weft_cuda_verdict_get(c->products, impl, args->op) == WEFT_VERDICT_STOPPED)
        return weft_error(WEFT_MSG_KERNEL_MISSING, WEFT_AT(.value = weft_op_get(args->op)->name),
                          "%s does not compute %s in the types and shapes of the node. Use another "
                          "implementation.",
                          weft_cuda_impl_get(impl)->name, weft_op_get(args->op)->name);
    return prepare_plan(c, impl, args, 0);
}

static void free_choice(weft_cuda_choice *c)
{
    for (selection *s = c->now, *earlier; s; s = earlier) {
        earlier = s->earlier;
        if (s->plan.plan)
            weft_cuda_impl_get(s->impl)->release(s->plan.plan);
        weft_free(s);
    }
    weft_free(c->key);
    weft_free(c);
}

static weft_status create(const weft_kernel_args *args, weft_products products, const char *key,
                          const bool *failed, weft_cuda_choice **out)
{
    weft_cuda_choice *c;
    WEFT_TRY(WEFT_NEW(c, 1, "the choice of a kernel"));
    c->products = products;
    memcpy(c->failed, failed, sizeof c->failed);
    c->key = weft_strdup(key);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(c->key, "the choice of a kernel"));
    WEFT_GO(forced ? force(args, c) : settle(args, c));
    *out = c;
    return WEFT_OK;
out:
    free_choice(c);
    return status;
}

/* Requires the lock of the list. */
static weft_status find(choice_list *list, const weft_kernel_args *args, weft_products products,
                        const char *key, const bool *failed, weft_cuda_choice **out)
{
    weft_cuda_choice *c = list->first;
    while (c && strcmp(c->key, key))
        c = c->next;
    if (!c) {
        WEFT_TRY(create(args, products, key, failed, &c));
        c->next = list->first;
        list->first = c;
    }
    *out = c;
    return WEFT_OK;
}

/* True if no library accepts the args: most nodes need no key. */
static bool has_only_own(const weft_kernel_args *args, weft_products products, const bool *failed)
{
    const int own = weft_cuda_impl_own();
    if (failed[own])
        return false;
    for (int i = 0; i < own; i++)
        if (weft_cuda_impl_accepts(i, args))
            return false;
    return weft_cuda_verdict_get(products, own, args->op) != WEFT_VERDICT_FAILED;
}

/* Nodes whose comparisons differ have choices of their own: the key of a choice lacks attributes
 * that a comparison includes. */
static weft_status put_key(const weft_kernel_args *args, weft_products products, const bool *failed,
                           weft_buf *key)
{
    if (forced)
        weft_buf_printf(key, "only %s: ", weft_cuda_impl_get(forced - 1)->name);
    weft_buf_printf(key, "%s ", weft_cuda_precision_name(products));
    weft_cuda_choice_key(args, key);
    for (int i = 0; i < weft_cuda_impl_count(); i++)
        if (failed[i])
            weft_buf_printf(key, " not %s", weft_cuda_impl_get(i)->name);
    return weft_buf_check(key);
}

weft_status weft_cuda_choose(const weft_kernel_args *args, weft_cuda_choice **choice)
{
    const weft_products products = weft_cuda_verdicts_precision(args->products);
    weft_cuda_compare_fn *compare = forced ? NULL : choices.compare;
    bool failed[WEFT_CUDA_IMPLS] = {false};
    *choice = NULL;
    if (compare)
        WEFT_TRY(compare(args, products, failed));
    if (!forced && has_only_own(args, products, failed))
        return WEFT_OK;
    weft_buf key = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(put_key(args, products, failed, &key));
    choice_list *list = forced ? &choices.forced : &choices.usual;
    pthread_mutex_lock(&list->mutex);
    status = find(list, args, products, key.data, failed, choice);
    pthread_mutex_unlock(&list->mutex);
out:
    weft_buf_free(&key);
    return status;
}

static void forget_list(choice_list *list)
{
    while (list->first) {
        weft_cuda_choice *c = list->first;
        list->first = c->next;
        free_choice(c);
    }
}

void weft_cuda_choices_forget(void)
{
    forget_list(&choices.usual);
    forget_list(&choices.forced);
    memset(choices.warned, 0, sizeof choices.warned);
    weft_cuda_choice_file_forget();
}

/* ---- launches -------------------------------------------------------------------------------- */

static bool are_aligned(const weft_view *view, int count)
{
    for (int i = 0; i < count; i++)
        if (view_present(&view[i]) && (uintptr_t)view[i].data % WEFT_CUDA_ALIGNMENT)
            return false;
    return true;
}

/* Stores the choice with its seconds before. A later run then has the same choice. */
static weft_status store_replaced(const weft_cuda_choice *c)
{
    const json_t *stored;
    json_t *seconds;
    int lock;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_cuda_files_lock(&lock));
    WEFT_GO(weft_cuda_choice_file_find(c->key, &stored));
    seconds = json_deep_copy(json_object_get(stored, "seconds"));
    WEFT_GO(store(c, seconds ? seconds : json_object()));
out:
    weft_cuda_files_unlock(lock);
    return status;
}

/* Changes a choice whose selection `failed` reported an error to the next implementation. Other
 * shapes keep theirs. */
static weft_status replace(weft_cuda_choice *c, const selection *failed,
                           const weft_kernel_args *args)
{
    if (c->now != failed)
        return WEFT_OK; /* another thread replaced it, and the next one did not fail */
    warn_of_shape(c, failed->impl, args->op, weft_error_text());
    c->failed[failed->impl] = true;
    WEFT_TRY(take_first(args, c));
    if (store_replaced(c) != WEFT_OK)
        weft_warn_error(WEFT_MSG_KERNEL_REPLACED, "the choice is not stored");
    return WEFT_OK;
}

weft_status_code weft_cuda_choice_launch(weft_cuda_choice *c, const weft_kernel_args *args)
{
    const bool aligned =
        are_aligned(args->in, args->in_count) && are_aligned(args->out, args->out_count);
    for (;;) {
        const selection *s = c && aligned ? c->now : NULL;
        if (!s || is_own(s->impl))
            return weft_cuda_impl_get(weft_cuda_impl_own())->launch(args, NULL);
        const weft_cuda_impl *impl = weft_cuda_impl_get(s->impl);
        if (!impl->joins && !weft_cuda_stream_begin(args->stream, impl->name))
            return WEFT_OK; /* the error appears when the host waits */
        const weft_status_code failed = impl->launch(args, s->plan.plan);
        if (failed == WEFT_OK || forced)
            return failed;
        pthread_mutex_lock(&choices.usual.mutex);
        const weft_status_code status = replace(c, s, args);
        pthread_mutex_unlock(&choices.usual.mutex);
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
    const char *key;
    json_t *all, *stored;
    int lock;
    weft_status_code status = WEFT_OK;
    pthread_mutex_lock(&choices.usual.mutex);
    WEFT_GO(weft_cuda_files_lock(&lock));
    WEFT_GO(weft_cuda_choice_file_all(&all));
    json_object_foreach(all, key, stored)
    {
        show(key, stored, each, user);
    }
out:
    weft_cuda_files_unlock(lock);
    pthread_mutex_unlock(&choices.usual.mutex);
    return status;
}
