#include "train/checkpoint/run_checkpoints.h"

#include "base/config_text.h"
#include "base/log.h"
#include "comm/comm_world.h"
#include "data/loader_order.h"
#include "train/checkpoint/provenance.h"
#include "train/checkpoint/run_places.h"
#include "train/graph/run_networks.h"
#include "train/graph/student_levels.h"

#include <stdlib.h>
#include <string.h>

static bool is_rank0(const weft_run_checkpoints *c)
{
    return weft_comm_rank(c->comm) == 0;
}

/* ---- parts --------------------------------------------------------------------------------- */

typedef struct trained_models {
    const weft_model *model[WEFT_CHECKPOINT_MAX_PARTS]; /* NULL: the discriminator */
    int count;
} trained_models;

static void add_model(const weft_model *model, const char *scope, bool partly_trained,
                      weft_checkpoint_part *part, trained_models *models)
{
    part[models->count] = (weft_checkpoint_part){scope, model->family->stem, NULL, partly_trained};
    models->model[models->count++] = model;
}

/* Adds the other networks that the steps of a distillation change. */
static void add_networks(const weft_run *run, const weft_run_models *m, weft_checkpoint_part *part,
                         trained_models *models)
{
    const char *scope[WEFT_RUN_NETWORKS];
    const int count = weft_run_networks_changed(run, scope);
    for (int i = 0; i < count; i++) {
        add_model(weft_run_network_model(m, scope[i]), scope[i], run->transformer.lora.rank > 0,
                  part, models);
        part[models->count - 1].internal = true;
    }
}

static trained_models list_parts(const weft_run *run, const weft_run_models *m,
                                 weft_checkpoint_part *part)
{
    trained_models all = {0};
    if (!weft_run_trains_denoiser(m)) {
        add_model(&m->autoencoder, m->autoencoder.family->scope, m->partly_trained, part, &all);
        if (weft_run_uses_discriminator(run))
            part[all.count++] =
                (weft_checkpoint_part){WEFT_DISCRIMINATOR_SCOPE, WEFT_DISCRIMINATOR_STEM, NULL};
        return all;
    }
    add_model(&m->denoiser, m->denoiser.family->scope, m->partly_trained, part, &all);
    add_networks(run, m, part, &all);
    for (int r = 0; r < m->text.encoders; r++)
        if (!(m->text_frozen >> r & 1))
            add_model(&m->text.encoder[r].model, m->text.encoder[r].row->encoder, false, part,
                      &all);
    if (weft_run_uses_identity(m))
        add_model(&m->identity, m->identity.family->scope, false, part, &all);
    return all;
}

int weft_run_checkpoints_parts(const weft_run *run, const weft_run_models *models,
                               weft_checkpoint_part part[WEFT_CHECKPOINT_MAX_PARTS])
{
    return list_parts(run, models, part).count;
}

weft_status weft_run_checkpoints_create(const weft_run *run, const weft_run_models *models,
                                        weft_comm *comm, weft_run_checkpoints *c)
{
    *c = (weft_run_checkpoints){.run = run, .models = models, .comm = comm};
    const trained_models all = list_parts(run, models, c->part);
    c->parts = all.count;
    for (int i = 0; i < all.count; i++)
        c->part[i].config = all.model[i] ? weft_model_write(all.model[i])
                                         : weft_discriminator_write(&models->losses.discriminator);
    weft_run resolved = *run;
    resolved.transformer.lora.targets =
        weft_run_trainable(run, weft_run_trained(models)->family, "").targets;
    weft_config_dump(&weft_run_section, &resolved, &c->yaml);
    WEFT_TRY(weft_buf_check(&c->yaml));
    return weft_run_places_restore(run->places, &c->yaml);
}

void weft_run_checkpoints_free(weft_run_checkpoints *c)
{
    for (int i = 0; i < c->parts; i++)
        json_decref(c->part[i].config);
    json_decref(c->resumed);
    json_decref(c->made_of);
    weft_buf_free(&c->yaml);
}

/* ---- layers with LoRA ----------------------------------------------------------------------- */

/* The layers in the newest checkpoint of the run in folder `out`, as JSON (heap). NULL: none. A
 * damaged checkpoint is reported when it is loaded. */
static char *recorded_targets(const char *out)
{
    json_t *state;
    if (weft_checkpoints_read_state(out, &state) != WEFT_OK || !state)
        return NULL;
    const json_t *lora = json_object_get(weft_provenance_of_state(state), "lora"),
                 *targets = json_object_get(lora, "targets");
    char *dump = json_array_size(targets) ? json_dumps(targets, JSON_COMPACT) : NULL;
    char *text = dump ? weft_strdup(dump) : NULL;
    free(dump);
    json_decref(state);
    return text;
}

static weft_status read_targets(const char *text, weft_arena *arena, weft_string_list *list)
{
    json_t *targets = json_loads(text, 0, NULL);
    WEFT_TRY(WEFT_ALLOCATED(targets, "the layers with LoRA"));
    weft_status_code status = WEFT_OK;
    const int64_t count = (int64_t)json_array_size(targets);
    WEFT_GO(WEFT_ARENA_NEW(arena, list->item, count, "the layers with LoRA"));
    for (int64_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(targets, (size_t)i));
        list->item[i] = weft_arena_strdup(arena, name ? name : "");
        WEFT_GO(WEFT_ALLOCATED(list->item[i], "the layers with LoRA"));
    }
    list->count = count;
out:
    json_decref(targets);
    return status;
}

weft_status weft_run_checkpoints_targets(weft_run *run, weft_comm *comm, weft_arena *arena)
{
    char *text = weft_comm_rank(comm) == 0 ? recorded_targets(run->out) : NULL;
    int64_t bytes = text ? (int64_t)strlen(text) + 1 : 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_comm_broadcast(comm, &bytes, sizeof bytes, 0));
    if (!bytes)
        return WEFT_OK;
    if (!text)
        WEFT_GO(WEFT_ALLOCATED(text = weft_alloc(bytes), "the layers with LoRA"));
    WEFT_GO(weft_comm_broadcast(comm, text, bytes, 0));
    WEFT_GO(read_targets(text, arena, &run->transformer.lora.recorded));
out:
    weft_free(text);
    return status;
}

/* ---- resuming ------------------------------------------------------------------------------ */

/* Rejects a checkpoint of another run by its provenance, before its tensors are compared. */
static weft_status check_state(void *user, const json_t *state, const char *folder)
{
    const weft_run_checkpoints *c = user;
    const json_t *made_of = weft_provenance_of_state(state);
    return is_rank0(c) && json_is_object(made_of)
               ? weft_provenance_check(c->run, made_of, c->made_of, folder)
               : WEFT_OK;
}

static weft_status open_files(weft_run_checkpoints *c, weft_store *store)
{
    weft_checkpoint_spec spec = {.run = c->run->out,
                                 .copy = weft_run_places_out(c->run->places),
                                 .store = store,
                                 .comm = c->comm,
                                 .parts = c->parts,
                                 .config_yaml = c->yaml.data,
                                 .keep_latest = c->run->checkpoint.keep_latest,
                                 .deadline = c->run->deadline,
                                 .check_state = check_state,
                                 .check_state_user = c};
    memcpy(spec.part, c->part, sizeof spec.part);
    return weft_checkpoints_open(&spec, &c->files);
}

/* Reads the rest of a checkpoint's state after the guard, and checks the values. */
static weft_status read_rest(const weft_run *run, const json_t *state, const char *where,
                             weft_run_progress *progress)
{
    int64_t train_stage, seed;
    const weft_guard *guard = &progress->guard;
    WEFT_TRY(weft_json_get_f64_or(state, "fps", where, 0, &progress->fps));
    WEFT_TRY(weft_json_get_i64_or(state, "stage", where, 0, &train_stage));
    WEFT_TRY(weft_json_get_i64_or(state, "seed", where, run->seed, &seed));
    if (!(progress->fps >= 0 && progress->fps <= 1e6))
        return weft_error(WEFT_MSG_CHECKPOINT_DAMAGED,
                          WEFT_AT(.file = where, .key = "fps", WEFT_NUMBER(progress->fps)),
                          "%g is not from 0 to 1e6", progress->fps);
    if (train_stage < 0 || seed < 0)
        return weft_error(WEFT_MSG_CHECKPOINT_DAMAGED,
                          WEFT_AT(.file = where, .key = train_stage < 0 ? "stage" : "seed"),
                          "stage %" PRId64 " or seed %" PRId64 " is below 0", train_stage, seed);
    if (guard->accepted + guard->skipped != progress->done)
        return weft_error(WEFT_MSG_CHECKPOINT_DAMAGED, WEFT_AT(.file = where, .key = "guard"),
                          "the guard counted %" PRId64 " steps and %" PRId64
                          " that were skipped, and the "
                          "checkpoint is of step %" PRId64,
                          guard->accepted, guard->skipped, progress->done);
    const json_t *made_of = weft_provenance_of_state(state);
    if (made_of && !json_is_object(made_of))
        return weft_error(WEFT_MSG_CHECKPOINT_DAMAGED, WEFT_AT(.file = where, .key = "provenance"),
                          "the value is not an object that describes the run");
    return WEFT_OK;
}

/* Reports that an earlier version, whose configs lack distill.fake_weights, trained the student at
 * other noise levels. */
static weft_status report_levels(const weft_run_checkpoints *c, const char *folder)
{
    const weft_train_stage *stage = c->run->train_stages.item;
    bool changed = false;
    if (!weft_distill_matches(&c->run->distill) ||
        weft_provenance_config_has(folder, "fake_weights:"))
        return WEFT_OK;
    for (int64_t i = 0; i < c->run->train_stages.count; i++)
        for (int b = 0; b < weft_train_stage_bucket_count(&stage[i]) && !changed; b++)
            WEFT_TRY(weft_student_levels_changed(c->run, c->models,
                                                 weft_train_stage_bucket(&stage[i], b), &changed));
    if (changed)
        weft_notice(WEFT_MSG_RUN_CHANGED, WEFT_AT(.file = folder, .key = "distill.method"),
                    "the steps before were trained at other noise levels: that version of weft did "
                    "not draw the levels at which weft generate calls this model");
    return WEFT_OK;
}

weft_status weft_run_checkpoints_resume(weft_run_checkpoints *c, weft_store *store,
                                        weft_run_progress *progress)
{
    char folder[512] = "";
    json_t *state;
    WEFT_TRY(open_files(c, store));
    WEFT_TRY(weft_checkpoints_load(c->files, &state, folder));
    if (!state)
        return WEFT_OK;
    c->resumed = state;
    WEFT_TRY(weft_json_get_i64(state, "step", folder, &progress->done));
    WEFT_TRY(weft_guard_restore(&progress->guard, json_object_get(state, "guard"), folder));
    WEFT_TRY(read_rest(c->run, state, folder, progress));
    if (is_rank0(c)) {
        weft_notice(WEFT_MSG_RUN_RESUMED, WEFT_AT(WEFT_NUMBER(progress->done)), "resuming from %s",
                    folder);
        weft_provenance_log_changes(folder, c->yaml.data);
        WEFT_TRY(report_levels(c, folder));
    }
    WEFT_TRY(weft_comm_barrier(c->comm));
    const int64_t total = weft_run_first_step(c->run, c->run->train_stages.count);
    if (is_rank0(c) && progress->done >= total)
        weft_notice(WEFT_MSG_RUN_FINISHED, WEFT_AT(WEFT_NUMBER(progress->done)),
                    "nothing to train: the run ends after %" PRId64
                    " step%s (checkpoint at step %" PRId64
                    "). Increase stages.N.steps to continue.",
                    total, weft_plural(total), progress->done);
    return WEFT_OK;
}

weft_status weft_run_checkpoints_restore_loader(const weft_run_checkpoints *c, weft_loader *loader)
{
    const weft_status_code status =
        weft_loader_restore(loader, json_object_get(c->resumed, "loader"), "state.json");
    if (status != WEFT_E_CONFIG || !c->run->checkpoint.allow_changes)
        return status;
    if (is_rank0(c))
        weft_warning(
            WEFT_MSG_RUN_CHANGED, WEFT_NOWHERE,
            "the data set differs from the checkpoint's, so this stage starts with its first "
            "samples");
    return WEFT_OK;
}

/* ---- saving -------------------------------------------------------------------------------- */

weft_status weft_run_checkpoints_save(weft_run_checkpoints *c, const weft_run_progress *progress,
                                      int64_t train_stage_index, const weft_loader *loader)
{
    json_t *state = NULL;
    if (is_rank0(c))
        state = json_pack("{s:I, s:o, s:o, s:I, s:I, s:f, s:O}", "step", (json_int_t)progress->done,
                          "guard", weft_guard_state(&progress->guard), "loader",
                          weft_loader_state(loader), "stage", (json_int_t)train_stage_index, "seed",
                          (json_int_t)c->run->seed, "fps", progress->fps, "provenance", c->made_of);
    return weft_checkpoints_save(c->files, progress->done, state);
}
