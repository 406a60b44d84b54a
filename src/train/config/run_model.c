#include "train/config/run_model.h"

#include "model/key_mapping.h"
#include "model/registry.h"

#include <stdio.h>
#include <string.h>

/* Sets omitted fields that follow from the run's other models. */
static void follow(const weft_family *family, json_t *json, int64_t channels, int64_t text_width)
{
    for (int i = 0; i < family->fields; i++) {
        const weft_field *f = &family->field[i];
        const int64_t value = f->default_source == WEFT_DEFAULT_SOURCE_LATENTS ? channels
                              : f->default_source == WEFT_DEFAULT_SOURCE_TEXT  ? text_width
                                                                               : 0;
        if (value > 0 && !json_object_get(json, f->key))
            json_object_set_new(json, f->key, json_integer(value));
    }
}

static weft_status from_nothing(const weft_run_model *m, const weft_model_use *use,
                                weft_model *model)
{
    const weft_family *family = weft_family_find(m->class_name);
    if (!family || family->role != use->role) {
        weft_buf known = {0};
        weft_family_list(use->role, &known);
        const weft_status_code status = weft_error(
            WEFT_MSG_CONFIG_VALUE,
            WEFT_AT(.file = use->path, .key = weft_message_key((char[64]){0}, "%s.class", use->key),
                    .value = m->class_name),
            "\"%s\" is not a %s that weft implements; known are %s", m->class_name,
            weft_role_name(use->role), known.data ? known.data : "?");
        weft_buf_free(&known);
        return status;
    }
    const weft_config_tree *c = &m->config;
    const char *text = c->json ? c->json : "{}";
    const weft_config_locations locations = {.where = c->json ? c->where : use->path,
                                             .count = c->count,
                                             .key = c->key,
                                             .key_where = c->key_where,
                                             .strict = true};
    json_t *json;
    WEFT_TRY(weft_json_parse(text, (int64_t)strlen(text), locations.where, &json));
    follow(family, json, use->channels, use->text_width);
    const weft_status_code status = weft_model_read_as(m->class_name, json, &locations, model);
    json_decref(json);
    return status == WEFT_E_FORMAT ? WEFT_E_CONFIG : status;
}

/* Fails with a hint if `folder` is a run's or a pipeline's folder that contains a model of this
 * role. */
static weft_status check_subfolders(const char *folder, weft_role role, const char *path,
                                    const char *key)
{
    static const char *const beneath[] = {"", "model/"};
    for (int i = 0; weft_families[i]; i++)
        for (int k = 0; k < WEFT_COUNT(beneath) && weft_families[i]->role == role; k++) {
            char config[1024];
            const char *scope = weft_families[i]->scope;
            snprintf(config, sizeof config, "%s/%s%s/config.json", folder, beneath[k], scope);
            if (weft_path_exists(config))
                return weft_error(WEFT_MSG_CONFIG_VALUE,
                                  WEFT_AT(.file = path,
                                          .key = weft_message_key((char[64]){0}, "%s.weights", key),
                                          .value = folder),
                                  "%s is not the folder of a %s; it contains one: write %s/%s%s",
                                  folder, weft_role_name(role), folder, beneath[k], scope);
        }
    return WEFT_OK;
}

weft_status weft_run_model_read(const weft_run_model *m, const weft_model_use *use,
                                weft_model *model)
{
    if (!m->weights[0])
        return from_nothing(m, use, model);
    const weft_status_code status = weft_model_open_as(m->weights, use->role, model);
    if (status != WEFT_OK)
        WEFT_TRY(check_subfolders(m->weights, use->role, use->path, use->key));
    WEFT_TRY(weft_error_at(
        status, WEFT_AT(.file = use->path,
                        .key = weft_message_key((char[64]){0}, "%s.weights", use->key))));
    return use->role == WEFT_ROLE_AUTOENCODER ? weft_key_mapping_statistics(m->weights, model)
                                              : WEFT_OK;
}

void weft_run_connectors_folder(const weft_run_model *text, char *folder, size_t bytes)
{
    const bool given = text->connectors && text->connectors[0];
    snprintf(folder, bytes, "%s%s", given ? text->connectors : text->weights,
             given ? "" : "/../connectors");
}
