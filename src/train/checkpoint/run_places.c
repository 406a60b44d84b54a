#include "train/checkpoint/run_places.h"

#include "base/launcher.h"
#include "base/location.h"
#include "base/log.h"
#include "comm/shared_folder.h"
#include "storage/input_copy.h"

#include <string.h>

typedef struct input {
    const char *location; /* borrowed from the config */
    weft_input_copy *copy;
} input;

struct weft_run_places {
    weft_run run;
    weft_run_model *text; /* owned: the list of text encoders of `run` */
    weft_working_copy *out;
    input *input; /* owned, [inputs] */
    int64_t inputs, input_capacity;
    weft_owner_keeper *keeper; /* NULL: no bucket of latents, or another rank writes there */
    weft_input_copy *settings; /* weft.json of the transformer's pipeline; NULL: not needed, none */
};

/* Replaces a remote location of a key. */
static weft_status copy_input(weft_run_places *p, const char **location)
{
    if (!*location || !weft_location_is_remote(*location))
        return WEFT_OK;
    WEFT_TRY(weft_grow((void **)&p->input, p->inputs, &p->input_capacity, sizeof *p->input));
    input *i = &p->input[p->inputs];
    i->location = *location;
    WEFT_TRY(weft_input_copy_open(*location, &i->copy));
    *location = weft_input_copy_path(i->copy);
    p->inputs++;
    return WEFT_OK;
}

static weft_status copy_model(weft_run_places *p, weft_run_model *model)
{
    WEFT_TRY(copy_input(p, &model->weights));
    WEFT_TRY(copy_input(p, &model->connectors));
    WEFT_TRY(copy_input(p, &model->image_encoder));
    return copy_input(p, &model->tokenizer);
}

/* Copies weft.json of the pipeline of remote weights. It decides how the first frame is given. */
static weft_status copy_settings(weft_run_places *p, weft_run_model *model)
{
    static const char name[] = "weft.json";
    size_t length = strlen(model->weights);
    weft_storage *storage = NULL;
    weft_storage_facts facts;
    while (length > 0 && model->weights[length - 1] == '/')
        length--;
    while (length > 0 && model->weights[length - 1] != '/')
        length--;
    if (length < 2 || model->weights[length - 2] == '/')
        return WEFT_OK; /* a complete bucket has no parent folder */
    char *parent = weft_strdup(model->weights);
    WEFT_TRY(WEFT_ALLOCATED(parent, "a location"));
    parent[length - 1] = 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_storage_open(parent, &storage));
    const weft_status_code found = weft_storage_facts_of(storage, name, &facts);
    if (found == WEFT_E_NOT_FOUND && weft_error_class() == WEFT_MSG_FILE_NOT_FOUND) {
        weft_error_clear();
        goto out;
    }
    WEFT_GO(found);
    WEFT_GO(weft_input_copy_open_object(storage, name, &p->settings));
    model->settings = weft_input_copy_path(p->settings);
out:
    weft_storage_close(storage);
    weft_free(parent);
    return status;
}

/* Starts the process that renews a claim on the bucket of latents. */
static weft_status keep_claims(weft_run_places *p)
{
    const char *latents = p->run.data.latents;
    if (!weft_location_is_remote(latents))
        return WEFT_OK;
    if (!weft_location_is_bucket(latents))
        return weft_location_check_local(latents, "data.latents");
    return weft_launcher_rank() > 0 ? WEFT_OK : weft_owner_keeper_start(&p->keeper);
}

static weft_status copy_all(weft_run_places *p)
{
    weft_run *run = &p->run;
    WEFT_TRY(copy_model(p, &run->autoencoder));
    if (run->transformer.weights && weft_location_is_remote(run->transformer.weights))
        WEFT_TRY(copy_settings(p, &run->transformer));
    WEFT_TRY(copy_model(p, &run->transformer));
    WEFT_TRY(copy_model(p, &run->identity));
    for (int64_t i = 0; i < run->text_encoders.count; i++)
        WEFT_TRY(copy_model(p, &p->text[i]));
    WEFT_TRY(copy_input(p, &run->control.image_encoder));
    WEFT_TRY(copy_input(p, &run->distill.teacher));
    WEFT_TRY(copy_input(p, &run->distill.fake_weights));
    WEFT_TRY(copy_input(p, &run->sound.autoencoder));
    WEFT_TRY(copy_input(p, &run->sound.vocoder));
    WEFT_TRY(copy_input(p, &run->cascades.plan));
    WEFT_TRY(copy_input(p, &run->loss.lpips.trunk));
    WEFT_TRY(copy_input(p, &run->loss.lpips.heads));
    WEFT_TRY(copy_input(p, &run->loss.adversarial.weights));
    WEFT_TRY(keep_claims(p));
    if (!weft_location_is_remote(run->out))
        return WEFT_OK;
    WEFT_TRY(weft_error_at(weft_working_copy_open(run->out, &p->out), WEFT_AT(.key = "out")));
    run->out = weft_working_copy_folder(p->out);
    return WEFT_OK;
}

weft_status weft_run_places_open(const weft_run *run, weft_run_places **places)
{
    weft_run_places *p;
    const weft_section_list *text = &run->text_encoders;
    WEFT_TRY(WEFT_NEW(p, 1, "the training run"));
    p->run = *run;
    weft_status_code status = WEFT_OK;
    if (text->count > 0) {
        WEFT_GO(WEFT_NEW(p->text, text->count, "the training run"));
        memcpy(p->text, text->item, (size_t)text->count * sizeof *p->text);
        p->run.text_encoders.item = p->text;
    }
    WEFT_GO(copy_all(p));
    p->run.places = p;
    *places = p;
    return WEFT_OK;
out:
    weft_run_places_close(p);
    return status;
}

void weft_run_places_close(weft_run_places *p)
{
    if (!p)
        return;
    for (int64_t i = 0; i < p->inputs; i++)
        weft_input_copy_close(p->input[i].copy);
    weft_input_copy_close(p->settings);
    weft_working_copy_close(p->out);
    weft_owner_keeper_end(p->keeper);
    weft_free(p->input);
    weft_free(p->text);
    weft_free(p);
}

const weft_run *weft_run_places_run(const weft_run_places *places)
{
    return &places->run;
}

weft_working_copy *weft_run_places_out(const weft_run_places *places)
{
    return places ? places->out : NULL;
}

weft_owner_keeper *weft_run_places_keeper(const weft_run_places *places)
{
    return places ? places->keeper : NULL;
}

/* ---- ranks --------------------------------------------------------------------------------- */

weft_status weft_run_places_check_shared(const weft_run_places *p, weft_comm *comm)
{
    return p->out ? weft_error_at(weft_comm_check_shared(comm, p->run.out,
                                                         weft_working_copy_location(p->out)),
                                  WEFT_AT(.key = "out"))
                  : WEFT_OK;
}

/* ---- texts --------------------------------------------------------------------------------- */

static weft_status replace_all(weft_buf *text, const char *from, const char *to)
{
    weft_buf result = {0};
    const char *at = text->data ? text->data : "";
    for (const char *next; (next = strstr(at, from)) != NULL; at = next + strlen(from)) {
        weft_buf_append(&result, at, next - at);
        weft_buf_append(&result, to, (int64_t)strlen(to));
    }
    weft_buf_append(&result, at, (int64_t)strlen(at));
    weft_buf_free(text);
    *text = result;
    return weft_buf_check(text);
}

weft_status weft_run_places_restore(const weft_run_places *p, weft_buf *text)
{
    if (!p)
        return WEFT_OK;
    for (int64_t i = 0; i < p->inputs; i++)
        WEFT_TRY(replace_all(text, weft_input_copy_path(p->input[i].copy), p->input[i].location));
    return p->out ? replace_all(text, weft_working_copy_folder(p->out),
                                weft_working_copy_location(p->out))
                  : WEFT_OK;
}
