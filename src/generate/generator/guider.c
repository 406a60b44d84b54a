#include "generate/generator/guider.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/json_foreign.h"
#include "base/message.h"

#include <string.h>

#define APG       "AdaptiveProjectedGuidance"
#define ZERO_STAR "ClassifierFreeZeroStarGuidance"
#define SHARED_FIELDS                                                                              \
    {"guidance_scale", NULL}, {"guidance_rescale", "[0]"}, {"start", "[0]"}, {"stop", "[1]"},      \
    {                                                                                              \
        "enabled", "[true]"                                                                        \
    }
/* The fields of each class that are implemented, with its defaults. */
static const weft_json_field cfg_fields[] = {
    {"_class_name", "[\"ClassifierFreeGuidance\", \"" APG "\", \"" ZERO_STAR "\"]"},
    SHARED_FIELDS,
    {NULL, NULL}};
static const weft_json_field apg_fields[] = {
    {"_class_name", "[\"" APG "\"]"},
    SHARED_FIELDS,
    {"eta", NULL},
    {"adaptive_projected_guidance_momentum", NULL},
    {"adaptive_projected_guidance_rescale", NULL},
    {"adaptive_projected_guidance_norm_dim", "[[-1, -2, -4], [-1, -2, -3, -4]]"},
    {"use_original_formulation", "[true, false]"},
    {NULL, NULL}};

static const weft_json_field zero_star_fields[] = {{"_class_name", "[\"" ZERO_STAR "\"]"},
                                                   SHARED_FIELDS,
                                                   {"zero_init_steps", NULL},
                                                   {"use_original_formulation", "[true, false]"},
                                                   {NULL, NULL}};

static weft_status read_zero_star(const json_t *json, const char *path, weft_guider *g)
{
    g->method = weft_guidance_find("zero_star");
    g->from_conditional = json_is_true(json_object_get(json, "use_original_formulation"));
    return weft_json_get_i64_or(json, "zero_init_steps", path, 1, &g->zero_steps);
}

static weft_status read_apg(const json_t *json, const char *path, weft_guider *g)
{
    const json_t *dims = json_object_get(json, "adaptive_projected_guidance_norm_dim");
    g->method = weft_guidance_find("apg");
    const json_t *momentum = json_object_get(json, "adaptive_projected_guidance_momentum");
    g->averages = momentum && !json_is_null(momentum);
    g->from_conditional = json_is_true(json_object_get(json, "use_original_formulation"));
    g->per_frame = json_array_size(dims) == 3;
    WEFT_TRY(weft_json_get_f64_or(json, "eta", path, 1, &g->eta));
    WEFT_TRY(weft_json_get_f64_or(json, "adaptive_projected_guidance_rescale", path, 15, &g->most));
    return g->averages ? weft_json_get_f64_or(json, "adaptive_projected_guidance_momentum", path, 0,
                                              &g->momentum)
                       : WEFT_OK;
}

weft_status weft_guider_read(const char *folder, double fallback, weft_guider *g)
{
    json_t *json = NULL;
    char *path = weft_path_join(folder, "guider/guider_config.json");
    weft_status_code status = WEFT_OK;
    *g = (weft_guider){.scale = fallback};
    WEFT_GO(WEFT_ALLOCATED(path, "the model"));
    if (!weft_path_exists(path))
        goto out;
    WEFT_GO(weft_json_load(path, &json));
    const char *name = json_string_value(json_object_get(json, "_class_name"));
    const bool apg = name && !strcmp(name, APG), zero_star = name && !strcmp(name, ZERO_STAR);
    WEFT_GO(weft_json_check_foreign(json, path, "",
                                    apg         ? apg_fields
                                    : zero_star ? zero_star_fields
                                                : cfg_fields,
                                    WEFT_MSG_MODEL_CONFIG_UNSUPPORTED));
    WEFT_GO(weft_json_get_f64_or(json, "guidance_scale", path, apg || zero_star ? 7.5 : fallback,
                                 &g->scale));
    if (apg)
        WEFT_GO(read_apg(json, path, g));
    if (zero_star)
        WEFT_GO(read_zero_star(json, path, g));
out:
    json_decref(json);
    weft_free(path);
    return status;
}

double weft_guider_off(const weft_guider *g)
{
    return g->from_conditional ? 0 : 1;
}
