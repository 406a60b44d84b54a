/* The cascades of an iteration and their options. Samples that fit on no degree are refused or
 * skipped. */
#include "train/cascade/planning_job.h"

#include "base/log.h"
#include "train/estimate/process_memory.h"

#include <math.h>
#include <string.h>

static weft_status no_memory(void)
{
    return weft_no_memory("the plan of an iteration");
}

void weft_planning_job_free(weft_planning_job *j)
{
    if (j) {
        weft_arena_free(j->arena);
        weft_arena_free(j->callers);
        weft_free(j->found.error);
    }
    weft_free(j);
}

/* Drops one reference. Call under the lock. */
void weft_planning_job_release(weft_planning_job *j)
{
    if (j && --j->holders == 0)
        weft_planning_job_free(j);
}

/* Asks the job's search to stop soon. */
void weft_planning_job_end(weft_planning_job *j)
{
    if (j)
        atomic_store(&j->over, true);
}

bool weft_planning_wants_degree(const weft_cascade_planner *a, int64_t degree)
{
    const weft_i64_list *list = &a->s.config->degrees;
    for (int64_t i = 0; i < list->count; i++)
        if (list->item[i] == degree)
            return true;
    if (list->count)
        return false;
    /* all degrees up to 8, then whole nodes, powers of two and all ranks; more degrees cost time */
    const int64_t per_node = a->s.cluster->devices;
    return degree <= 8 || degree % per_node == 0 || (degree & (degree - 1)) == 0 ||
           degree == a->s.ranks;
}

/* Adds the options of one cascade: its degrees with seconds and bytes. */
static weft_status add_options(weft_cascade_planner *a, weft_planning_job *j,
                               weft_cascade_module module, int bucket, weft_cascade *c)
{
    const int64_t widest = module == WEFT_CASCADE_TEXT ? 1 : a->s.ranks;
    const bool heads =
        a->s.config->policy == WEFT_POLICY_ULYSSES || a->s.config->policy == WEFT_POLICY_KNAPFORMER;
    WEFT_TRY(WEFT_ARENA_NEW(j->arena, c->option, widest, "the plan of an iteration"));
    for (int64_t k = 1; k <= widest; k++) {
        weft_cascade_option o = {.degree = k};
        if ((k > 1 || module == WEFT_CASCADE_DIT) && !weft_planning_wants_degree(a, k))
            continue;
        if (heads && module == WEFT_CASCADE_DIT && a->s.heads % k)
            continue;
        WEFT_TRY(weft_cascade_cost_table_get(a->s.cost_table, module, bucket, (int)k, &o.seconds,
                                             &o.bytes));
        if (isfinite(o.seconds))
            c->option[c->option_count++] = o;
    }
    return WEFT_OK;
}

/* Adds a cascade. A DiT cascade follows the last `producers` cascades. */
static weft_status add_cascade(weft_cascade_planner *a, weft_planning_job *j, int64_t sample,
                               weft_cascade_module module, int producers)
{
    const int64_t at = j->list.count++;
    weft_cascade *c = &j->list.item[at];
    c->id =
        weft_arena_printf(j->arena, "s%" PRId64 ".%s", sample, weft_cascade_module_name(module));
    c->after = weft_arena_calloc(j->arena, 2, sizeof *c->after);
    WEFT_TRY(WEFT_ALLOCATED(c->id && c->after, "the plan of an iteration"));
    for (int64_t b = at - producers; b < at; b++)
        c->after[c->after_count++] = (int32_t)b;
    j->sample_of[at] = (int32_t)sample;
    j->cascade[at] = (weft_placed_cascade){
        .at = {.id = c->id, .after = c->after, .after_count = c->after_count},
        .sample = (int32_t)sample,
        .module = module,
        .method = module == WEFT_CASCADE_DIT ? weft_cascade_planner_method(a->s.config, a->s.ring)
                                             : WEFT_SP_NONE};
    return add_options(a, j, module, j->sample[sample].bucket, c);
}

static bool encodes(const weft_cascade_planner *a, weft_cascade_module module)
{
    return module == WEFT_CASCADE_TEXT ? a->s.text : module == WEFT_CASCADE_VAE && a->s.vae;
}

/* True: the iteration before encodes the sample. */
static bool is_kept(const weft_cascade_planner *a, const weft_placed_sample *s,
                    weft_cascade_module module)
{
    return !s->ahead && a->before && encodes(a, module) &&
           weft_placed_ahead(a->before, s->batch, module);
}

/* Adds the cascades of a sample that this iteration runs. */
static weft_status add_sample(weft_cascade_planner *a, weft_planning_job *j, int64_t s)
{
    int producers = 0;
    for (int m = 0; m < WEFT_CASCADE_DIT; m++) {
        if (!encodes(a, m) || is_kept(a, &j->sample[s], m))
            continue;
        WEFT_TRY(add_cascade(a, j, s, m, 0));
        producers++;
    }
    return j->sample[s].ahead ? WEFT_OK : add_cascade(a, j, s, WEFT_CASCADE_DIT, producers);
}

/* Adds the kept encoders of DiT cascade `to`, after the cascades of the list. */
static weft_status add_kept(weft_cascade_planner *a, weft_planning_job *j, int64_t to)
{
    weft_placed_cascade *dit = &j->cascade[to];
    for (int m = 0; m < WEFT_CASCADE_DIT; m++) {
        if (!is_kept(a, &j->sample[dit->sample], m))
            continue;
        const int64_t at = j->list.count + j->kept++;
        const char *id = weft_arena_printf(j->arena, "s%d.%s", (int)dit->sample,
                                           weft_cascade_module_name((weft_cascade_module)m));
        WEFT_TRY(WEFT_ALLOCATED(id, "the plan of an iteration"));
        /* the array has room for both encoders */
        ((int32_t *)(uintptr_t)dit->at.after)[dit->at.after_count++] = (int32_t)at;
        j->cascade[at] = (weft_placed_cascade){.at = {.id = id, .start = -1},
                                               .sample = dit->sample,
                                               .module = (weft_cascade_module)m,
                                               .kept = true};
    }
    return WEFT_OK;
}

static weft_status make_list(weft_cascade_planner *a, weft_planning_job *j)
{
    const int64_t most = WEFT_CASCADE_MODULES * j->samples;
    j->list =
        (weft_cascade_list){.item = weft_arena_calloc(j->arena, most + 1, sizeof *j->list.item)};
    j->cascade = weft_arena_calloc(j->arena, most + 1, sizeof *j->cascade);
    j->sample_of = weft_arena_calloc(j->arena, most + 1, sizeof *j->sample_of);
    j->work = weft_arena_calloc(j->arena, j->samples + 1, sizeof *j->work);
    if (!j->list.item || !j->cascade || !j->sample_of || !j->work)
        return no_memory();
    for (int64_t s = 0; s < j->samples; s++) {
        j->work[s] = a->s.work[j->sample[s].bucket];
        WEFT_TRY(add_sample(a, j, s));
    }
    for (int64_t c = 0; c < j->list.count; c++)
        if (j->cascade[c].module == WEFT_CASCADE_DIT)
            WEFT_TRY(add_kept(a, j, c));
    return WEFT_OK;
}

/* ---- samples that fit on no degree ---------------------------------------------------------- */

/* Sets *bytes to the memory that a bucket needs: the maximum over its cascades of the least bytes
 * over degrees. */
static weft_status least_bytes(weft_cascade_planner *a, int bucket, double *bytes,
                               weft_cascade_module *which)
{
    *bytes = 0;
    for (int m = 0; m < WEFT_CASCADE_MODULES; m++) {
        const bool there = m == WEFT_CASCADE_DIT || (m == WEFT_CASCADE_TEXT ? a->s.text : a->s.vae);
        double least = INFINITY;
        for (int k = 1; there && k <= (m == WEFT_CASCADE_TEXT ? 1 : a->s.ranks); k++) {
            double seconds, own;
            if ((k > 1 || m == WEFT_CASCADE_DIT) && !weft_planning_wants_degree(a, k))
                continue;
            WEFT_TRY(weft_cascade_cost_table_get(a->s.cost_table, m, bucket, k, &seconds, &own));
            least = isfinite(seconds) ? fmin(least, own) : least;
        }
        if (there && least > *bytes) {
            *bytes = least;
            *which = m;
        }
    }
    return WEFT_OK;
}

/* Returns an error with a sufficient memory limit: also for a process that is larger at the next
 * start. */
static weft_status refuse(const weft_cascade_planner *a, const weft_placed_sample *s, double least,
                          weft_cascade_module module)
{
    const double mib = 1 << 20;
    char size[64], text[2][32];
    weft_plans_size(&a->s.bucket[s->bucket], size);
    return weft_error(WEFT_MSG_PLAN_INFEASIBLE,
                      WEFT_AT(.file = a->s.path, .key = "parallel.cascades", WEFT_NUMBER(least)),
                      "the %s of a sample of %s (clips x frames x height x width; batch %" PRId64
                      " of the stage) fits "
                      "on no degree: it needs %s on a rank, and a rank has %s. "
                      "parallel.cascades.memory_limit: %.0fMiB is enough; %s",
                      weft_cascade_module_name(module), size, s->batch,
                      weft_format_bytes((int64_t)least, text[0]),
                      weft_format_bytes((int64_t)a->s.memory, text[1]),
                      ceil((least + WEFT_PROCESS_VARIES) / mib),
                      a->s.config->unfit == WEFT_UNFIT_REFUSE
                          ? "oversized: skip leaves such samples out"
                          : "without the samples that do not fit, the step is empty");
}

/* Refuses the sample that needs the most memory, if it fits on no degree. Its memory is enough for
 * all samples. */
static weft_status refuse_unfit(weft_cascade_planner *a, const weft_planning_job *j)
{
    const weft_placed_sample *worst = NULL;
    weft_cascade_module of = WEFT_CASCADE_DIT;
    double most = a->s.memory;
    for (int64_t i = 0; i < j->samples && a->s.memory > 0; i++) {
        weft_cascade_module module = WEFT_CASCADE_DIT;
        double least;
        WEFT_TRY(least_bytes(a, j->sample[i].bucket, &least, &module));
        if (least > most) {
            worst = &j->sample[i];
            most = least;
            of = module;
        }
    }
    return worst ? refuse(a, worst, most, of) : WEFT_OK;
}

/* Removes the samples that fit on no degree and rescales the weights of the others. The next step
 * removes and counts its own samples. */
static weft_status fit(weft_cascade_planner *a, weft_planning_job *j)
{
    const weft_placed_sample first = j->sample[0];
    double rest = 0;
    int64_t kept = 0, trained = 0;
    if (a->s.config->unfit == WEFT_UNFIT_REFUSE)
        WEFT_TRY(refuse_unfit(a, j));
    for (int64_t i = 0; i < j->samples; i++) {
        const weft_placed_sample s = j->sample[i];
        double least = 0;
        weft_cascade_module module = WEFT_CASCADE_DIT;
        if (a->s.memory > 0)
            WEFT_TRY(least_bytes(a, s.bucket, &least, &module));
        if (a->s.memory > 0 && least > a->s.memory) {
            if (!a->warned[s.bucket]) {
                char size[64], text[32];
                weft_plans_size(&a->s.bucket[s.bucket], size);
                weft_warning(
                    WEFT_MSG_SAMPLE_SKIPPED, WEFT_NOWHERE,
                    "samples of %s fit on no degree and are skipped; they need %s on a rank", size,
                    weft_format_bytes((int64_t)least, text));
            }
            a->warned[s.bucket] = true;
            j->left_out += !s.ahead;
            continue;
        }
        j->sample[kept++] = s;
        trained += !s.ahead;
        rest += s.weight;
    }
    if (trained == 0) {
        double least = 0;
        weft_cascade_module module = WEFT_CASCADE_DIT;
        WEFT_TRY(least_bytes(a, first.bucket, &least, &module));
        return refuse(a, &first, least, module);
    }
    for (int64_t i = 0; i < kept && j->left_out; i++)
        j->sample[i].weight /= rest;
    j->samples = kept;
    return WEFT_OK;
}

static weft_status copy_samples(weft_planning_job *j, const weft_placed_sample *sample,
                                int64_t samples)
{
    WEFT_TRY(WEFT_ARENA_NEW(j->arena, j->sample, samples + 1, "the plan of an iteration"));
    j->samples = samples;
    for (int64_t i = 0; i < samples; i++) {
        weft_item *item = NULL;
        j->sample[i] = sample[i];
        if (!sample[i].item)
            continue;
        WEFT_TRY(WEFT_ARENA_NEW(j->arena, item, sample[i].clips + 1, "the plan of an iteration"));
        memcpy(item, sample[i].item, (size_t)sample[i].clips * sizeof *item);
        j->sample[i].item = item;
    }
    return WEFT_OK;
}

/* Copies the current record: the planner thread reads the copy while the next iteration extends the
 * record. */
static weft_status copy_record(const weft_cascade_planner *a, weft_planning_job *j)
{
    const int64_t bytes = WEFT_CASCADE_MODULES * (int64_t)sizeof *j->errors;
    if (a->s.config->objective != WEFT_OBJECTIVE_EXPECTED || !a->s.errors ||
        !a->s.errors[WEFT_CASCADE_DIT].count)
        return WEFT_OK;
    j->errors = weft_arena_alloc(j->arena, bytes);
    j->slow = weft_arena_calloc(j->arena, a->s.ranks, sizeof *j->slow);
    WEFT_TRY(WEFT_ALLOCATED(j->errors && j->slow, "the plan of an iteration"));
    memcpy(j->errors, a->s.errors, (size_t)bytes);
    weft_rank_speeds_get(a->s.speeds, j->slow);
    return WEFT_OK;
}

weft_status weft_planning_job_create(weft_cascade_planner *a, int64_t step,
                                     const weft_placed_sample *sample, int64_t samples,
                                     weft_planning_job **out)
{
    weft_planning_job *j;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(j, 1, "the plan of an iteration"));
    j->arena = weft_arena_create();
    j->callers = weft_arena_create();
    j->step = step;
    WEFT_GO(j->arena && j->callers ? copy_samples(j, sample, samples) : no_memory());
    WEFT_GO(fit(a, j));
    WEFT_GO(copy_record(a, j));
    WEFT_GO(make_list(a, j));
    *out = j;
    return WEFT_OK;
out:
    weft_planning_job_free(j);
    return status;
}
