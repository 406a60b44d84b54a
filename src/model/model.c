#include "model/model.h"

#include "base/fs.h"
#include "nn/nn.h"

#include <string.h>

static const char *const class_names[] = {"WanTransformer3DModel", "AutoencoderKLWan",
                                          "WeftBytesEncoder"};

const char *weft_model_class(const weft_model *model)
{
    return class_names[model->family];
}

static weft_status find_family(const json_t *json, const char *where, weft_family *family)
{
    if (!json_is_object(json))
        return weft_fail(WEFT_E_FORMAT, "%s: not a model config: a JSON object is needed", where);
    const char *name;
    WEFT_TRY(weft_json_get_string_or(json, "_class_name", where, NULL, &name));
    for (int i = 0; i < (int)(sizeof class_names / sizeof *class_names); i++)
        if (name && !strcmp(name, class_names[i])) {
            *family = (weft_family)i;
            return WEFT_OK;
        }
    if (name)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: model class \"%s\" is not built in; known are %s, %s, %s", where,
                         name, class_names[0], class_names[1], class_names[2]);
    if (json_object_get(json, "num_attention_heads") && json_object_get(json, "freq_dim"))
        *family = WEFT_FAMILY_WAN_DIT;
    else if (json_object_get(json, "z_dim") && json_object_get(json, "dim_mult"))
        *family = WEFT_FAMILY_WAN_VAE;
    else
        return weft_fail(WEFT_E_FORMAT,
                         "%s: no \"_class_name\", and the fields fit no model family", where);
    return WEFT_OK;
}

weft_status weft_model_read(const json_t *json, const char *where, weft_model *model)
{
    weft_model m = {0};
    WEFT_TRY(find_family(json, where, &m.family));
    switch (m.family) {
    case WEFT_FAMILY_WAN_DIT: WEFT_TRY(weft_wan_dit_config_read(json, where, &m.dit)); break;
    case WEFT_FAMILY_WAN_VAE: WEFT_TRY(weft_wan_vae_config_read(json, where, &m.vae)); break;
    case WEFT_FAMILY_BYTES: WEFT_TRY(weft_bytes_config_read(json, where, &m.bytes)); break;
    }
    *model = m;
    return WEFT_OK;
}

/* A folder of folders, as pipelines are published and weft train writes them. */
static bool is_pipeline(const char *folder)
{
    char *index = weft_path_join(folder, "model_index.json");
    const bool found = index && weft_path_exists(index);
    weft_free(index);
    return found;
}

weft_status weft_model_open(const char *path, weft_model *model)
{
    char *file = weft_path_is_dir(path) ? weft_path_join(path, "config.json") : weft_strdup(path);
    if (!file)
        return weft_fail(WEFT_E_MEMORY, "out of memory for path %s", path);
    json_t *json = NULL;
    weft_status_code status = weft_json_load(file, &json);
    if (status == WEFT_E_NOT_FOUND && is_pipeline(path))
        status = weft_fail(
            WEFT_E_NOT_FOUND,
            "%s holds several models; give one of its folders, as %s/transformer or %s/vae", path,
            path, path);
    if (status == WEFT_OK)
        status = weft_model_read(json, file, model);
    json_decref(json);
    weft_free(file);
    return status;
}

json_t *weft_model_write(const weft_model *model)
{
    switch (model->family) {
    case WEFT_FAMILY_WAN_DIT: return weft_wan_dit_config_write(&model->dit);
    case WEFT_FAMILY_WAN_VAE: return weft_wan_vae_config_write(&model->vae);
    case WEFT_FAMILY_BYTES: return weft_bytes_config_write(&model->bytes);
    }
    return NULL;
}

static void build_vae(weft_graph *g, const weft_wan_vae_config *c, const weft_model_size *s)
{
    const weft_value video = weft_input(
        g, "video", WEFT_F32, WEFT_SHAPE(s->batch, s->frames, s->height, s->width, c->in_channels));
    weft_value mean, logvar;
    weft_wan_vae_moments(g, weft_wan_vae_encode(g, c, WEFT_VAE_ALONE, video), &mean, &logvar);
    const weft_value noise = weft_input(
        g, "noise", WEFT_F32, weft_value_ok(mean) ? weft_value_get(g, mean)->shape : WEFT_SCALAR);
    const weft_value std = weft_unary(g, WEFT_OP_EXP, weft_affine(g, logvar, 0.5, 0));
    const weft_value latents = weft_add(g, mean, weft_mul(g, std, noise));
    const weft_value decoded = weft_wan_vae_decode(g, c, WEFT_VAE_ALONE, latents);
    weft_output(g, "mean", mean);
    weft_output(g, "logvar", logvar);
    weft_output(g, "reconstruction", weft_clamp(g, decoded, -1, 1));
}

void weft_model_build(weft_graph *g, const weft_model *model, const weft_model_size *s)
{
    switch (model->family) {
    case WEFT_FAMILY_WAN_DIT: {
        const weft_wan_dit_config *c = &model->dit;
        const weft_value latents =
            weft_input(g, "latents", WEFT_F32,
                       WEFT_SHAPE(s->batch, s->frames, s->height, s->width, c->in_channels));
        const weft_value timestep = weft_input(g, "timestep", WEFT_F32, WEFT_SHAPE(s->batch));
        const weft_value text =
            weft_input(g, "text", WEFT_F32, WEFT_SHAPE(s->batch, s->text, c->text_dim));
        weft_output(g, "prediction", weft_wan_dit(g, c, latents, timestep, text));
        return;
    }
    case WEFT_FAMILY_WAN_VAE: build_vae(g, &model->vae, s); return;
    case WEFT_FAMILY_BYTES: {
        const weft_value tokens = weft_input(g, "tokens", WEFT_I32, WEFT_SHAPE(s->batch, s->text));
        weft_output(g, "text", weft_bytes_encoder(g, &model->bytes, tokens));
        return;
    }
    }
}
