/* Fields of a config.json that weft does not read: the reference's defaults and fields without an
 * effect are accepted, every other one is rejected by name. */
#include "base/status.h"
#include "model/family.h"
#include "model/model.h"
#include "model/registry.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static weft_status read_text(const char *text)
{
    json_t *json;
    weft_model model;
    cr_assert_eq(weft_json_parse(text, (int64_t)strlen(text), "test", &json), WEFT_OK);
    const weft_status_code status = weft_model_read(json, "config.json", &model);
    json_decref(json);
    return status;
}

/* A published size of the family, else its defaults, as JSON; new reference. */
static json_t *config_of(const weft_family *family)
{
    weft_model model;
    const weft_named_config *size = family->sizes;
    cr_assert_eq(size && size->name ? weft_model_open(size->name, &model)
                                    : weft_model_default(family->class_name, &model),
                 WEFT_OK, "%s", weft_error_message());
    json_t *json = weft_model_write(&model);
    cr_assert_not_null(json);
    return json;
}

static weft_status read_with(json_t *json, const char *key, json_t *value)
{
    weft_model model;
    json_object_set_new(json, key, value);
    const weft_status_code status = weft_model_read(json, "config.json", &model);
    json_object_del(json, key);
    return status;
}

static void expect_rejected(weft_status_code status, const char *key, const char *value)
{
    cr_expect_eq(status, WEFT_E_UNSUPPORTED, "%s: %s was accepted", key, value);
    if (status == WEFT_OK)
        return;
    cr_expect_eq(weft_error_class(), WEFT_MSG_MODEL_CONFIG_UNSUPPORTED, "%s", weft_error_message());
    cr_expect_str_eq(weft_error_fields()->file, "config.json");
    cr_expect_str_eq(weft_error_fields()->key, key);
    cr_expect(strstr(weft_error_fields()->value, value), "%s", weft_error_message());
    cr_expect(strstr(weft_error_text(), value), "%s", weft_error_message());
}

Test(fields, every_family_rejects_an_unknown_field)
{
    for (int i = 0; weft_families[i]; i++) {
        json_t *json = config_of(weft_families[i]);
        weft_model model;
        cr_expect_eq(weft_model_read(json, "config.json", &model), WEFT_OK, "%s: %s",
                     weft_families[i]->class_name, weft_error_message());
        expect_rejected(read_with(json, "new_switch", json_true()), "new_switch", "true");
        expect_rejected(read_with(json, "new_switch", json_null()), "new_switch", "null");
        cr_expect_eq(read_with(json, "_private", json_true()), WEFT_OK);
        json_decref(json);
    }
}

static void expect_accepted(const char *config)
{
    cr_expect_eq(read_text(config), WEFT_OK, "%s", weft_error_message());
}

Test(fields, fields_of_public_encoders_are_accepted)
{
    expect_accepted("{\"architectures\": [\"T5EncoderModel\"], \"model_type\": \"t5\","
                    " \"d_ff\": 64, \"feed_forward_proj\": \"gated-gelu\","
                    " \"dense_act_fn\": \"gelu_new\", \"is_gated_act\": true, \"n_positions\": 512,"
                    " \"dropout_rate\": 0.1, \"torch_dtype\": \"bfloat16\", \"pruned_heads\": {},"
                    " \"is_decoder\": false, \"add_cross_attention\": false, \"num_beams\": 1,"
                    " \"task_specific_params\": {\"summarization\": {\"num_beams\": 4}}}");
    expect_accepted("{\"model_type\": \"llama\", \"sliding_window\": 4096, \"rope_scaling\": null,"
                    " \"layer_types\": [\"full_attention\", \"full_attention\"],"
                    " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1000000.0,"
                    " \"mrope_section\": [16, 24, 24], \"partial_rotary_factor\": 1.0}}");
    expect_accepted("{\"model_type\": \"bert\", \"directionality\": \"bidi\","
                    " \"pooler_type\": \"first_token_transform\", \"hidden_dropout_prob\": 0.1}");
    expect_accepted("{\"model_type\": \"clip_text_model\", \"dropout\": 0.0, \"bos_token_id\": 0,"
                    " \"initializer_factor\": 1, \"text_config_dict\": null}");
}

Test(fields, a_value_that_changes_the_model_is_rejected)
{
    expect_rejected(read_text("{\"model_type\": \"t5\", \"is_decoder\": true}"), "is_decoder",
                    "true");
    expect_rejected(read_text("{\"model_type\": \"t5\", \"feed_forward_proj\": \"relu\","
                              " \"dense_act_fn\": \"silu\"}"),
                    "dense_act_fn", "silu");
    expect_rejected(read_text("{\"model_type\": \"t5\", \"feed_forward_proj\": \"relu\","
                              " \"is_gated_act\": true}"),
                    "is_gated_act", "true");
    expect_rejected(read_text("{\"model_type\": \"t5\", \"quantization_config\": {\"bits\": 4}}"),
                    "quantization_config", "bits");
    expect_rejected(read_text("{\"model_type\": \"llama\", \"layer_types\":"
                              " [\"full_attention\", \"sliding_attention\"]}"),
                    "layer_types", "sliding_attention");
    expect_rejected(read_text("{\"model_type\": \"llama\", \"rope_parameters\":"
                              " {\"rope_type\": \"default\", \"partial_rotary_factor\": 0.5}}"),
                    "rope_parameters.partial_rotary_factor", "0.5");
    expect_rejected(read_text("{\"model_type\": \"llama\", \"rope_scaling\": {\"turns\": 3}}"),
                    "rope_scaling.turns", "3");
    expect_rejected(read_text("{\"_class_name\": \"WanTransformer3DModel\", \"num_layer\": 2}"),
                    "num_layer", "2");
}

/* Reads weft's own config of Wan Animate. */
static weft_status read_own(const char *text, weft_model *model)
{
    const weft_config_locations locations = {.where = "run.yaml:3", .strict = true};
    json_t *json;
    cr_assert_eq(weft_json_parse(text, (int64_t)strlen(text), "test", &json), WEFT_OK);
    const weft_status_code status =
        weft_model_read_as("WanAnimateTransformer3DModel", json, &locations, model);
    json_decref(json);
    return status;
}

Test(fields, objects_of_own_configs_have_fields)
{
    static const char *const wrong[][2] = {{"{\"5\":3}", "motion_encoder_channel_sizes.5"},
                                           {"{\"4\":\"x\"}", "motion_encoder_channel_sizes.4"},
                                           {"{\"4\":-1}", "motion_encoder_channel_sizes.4"},
                                           {"3", "motion_encoder_channel_sizes"}};
    weft_model model;
    cr_assert_eq(read_own("{\"motion_encoder_size\":8,\"latent_channels\":4,"
                          "\"motion_encoder_channel_sizes\":{\"4\":3,\"8\":2}}",
                          &model),
                 WEFT_OK, "%s", weft_error_message());
    json_t *written = weft_model_write(&model),
           *sizes = json_object_get(written, "motion_encoder_channel_sizes");
    cr_expect_eq(json_integer_value(json_object_get(sizes, "4")), 3);
    cr_expect_eq(json_integer_value(json_object_get(sizes, "8")), 2);
    json_decref(written);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[160];
        snprintf(text, sizeof text, "{\"motion_encoder_channel_sizes\":%s}", wrong[i][0]);
        cr_expect_neq(read_own(text, &model), WEFT_OK, "%s", text);
        cr_expect_str_eq(weft_error_fields()->key, wrong[i][1], "%s", text);
        cr_expect_str_eq(weft_error_fields()->file, "run.yaml:3");
    }
}

/* A field inside of a model inside. */
Test(fields, parts_reject_an_unknown_field)
{
    weft_model model;
    cr_assert_eq(weft_model_open("llava-llama3-8b", &model), WEFT_OK);
    json_t *json = weft_model_write(&model);
    json_object_set_new(json_object_get(json, "vision_config"), "registers", json_integer(4));
    expect_rejected(weft_model_read(json, "config.json", &model), "registers", "4");
    json_decref(json);
}

/* 0 and 0.0 are one value. */
Test(fields, numbers_are_compared_by_value)
{
    expect_accepted("{\"_class_name\": \"CogVideoXTransformer3DModel\", \"freq_shift\": 0}");
    expect_accepted("{\"_class_name\": \"CogVideoXTransformer3DModel\", \"freq_shift\": 0.0}");
    expect_rejected(
        read_text("{\"_class_name\": \"CogVideoXTransformer3DModel\", \"freq_shift\": 1.0}"),
        "freq_shift", "1.0");
}

/* ---- configs that transformers 5 writes (tools/golden_encoder_configs.py) -------------------- */

/* The config with defaults and limits, of the model of this role in `json`. */
static json_t *opened(const char *class_name, const json_t *json, weft_role role)
{
    char path[] = "fields_XXXXXX";
    weft_model model;
    const int file = mkstemp(path);
    cr_assert(file >= 0 && json_dumpfd(json, file, 0) == 0 && close(file) == 0);
    cr_assert_eq(weft_model_open_as(path, role, &model), WEFT_OK, "%s: %s", class_name,
                 weft_error_message());
    cr_assert_eq(unlink(path), 0);
    return weft_model_write(&model);
}

static void expect_same(json_t *one, json_t *other)
{
    char *a = json_dumps(one, JSON_SORT_KEYS), *b = json_dumps(other, JSON_SORT_KEYS);
    cr_expect_str_eq(a, b);
    free(a);
    free(b);
    json_decref(one);
    json_decref(other);
}

static json_t *encoder_configs(void)
{
    json_t *all;
    cr_assert_eq(weft_json_load("tests/golden/configs/encoder_configs.json", &all), WEFT_OK, "%s",
                 weft_error_message());
    return all;
}

Test(fields, encoder_configs_of_transformers_5_are_accepted)
{
    json_t *all = encoder_configs(), *config;
    const char *name;
    int count = 0;
    json_object_foreach(all, name, config)
    {
        const bool both = !strcmp(name, "CLIPModel"),
                   sees = strstr(name, "Vision") || !strcmp(name, "ViTModel");
        json_decref(opened(name, config, sees ? WEFT_ROLE_IMAGE_ENCODER : WEFT_ROLE_TEXT_ENCODER));
        if (both)
            json_decref(opened(name, config, WEFT_ROLE_IMAGE_ENCODER));
        count++;
    }
    cr_expect_eq(count, 23);
    json_decref(all);
}

/* Gemma 3 has rotary positions by kind of layer. The older form has the same values in the config
 * itself. */
Test(fields, gemma_3_reads_both_forms_of_rotary_positions)
{
    json_t *all = encoder_configs(), *both = json_object_get(all, "Gemma3ForConditionalGeneration"),
           *mine = json_object_get(all, "Gemma3TextModel"), *old = json_deep_copy(mine), *rope;
    json_object_del(old, "rope_parameters");
    json_object_set_new(old, "rope_theta", json_real(1e6));
    json_object_set_new(old, "rope_local_base_freq", json_real(2e4));
    json_object_set_new(old, "rope_scaling",
                        json_pack("{s:s, s:f}", "rope_type", "linear", "factor", 8.0));
    expect_same(opened("old", old, WEFT_ROLE_TEXT_ENCODER),
                opened("new", mine, WEFT_ROLE_TEXT_ENCODER));
    expect_same(opened("old", old, WEFT_ROLE_TEXT_ENCODER),
                opened("both", both, WEFT_ROLE_TEXT_ENCODER));
    rope = json_object_get(mine, "rope_parameters");
    weft_model model;
    json_object_set_new(json_object_get(rope, "full_attention"), "rope_type", json_string("yarn"));
    expect_rejected(weft_model_read(mine, "config.json", &model),
                    "rope_parameters.full_attention.rope_type", "yarn");
    json_object_set_new(json_object_get(rope, "full_attention"), "rope_type",
                        json_string("linear"));
    json_object_set_new(json_object_get(rope, "sliding_attention"), "factor", json_real(2));
    expect_rejected(weft_model_read(mine, "config.json", &model),
                    "rope_parameters.sliding_attention.factor", "2");
    json_object_del(json_object_get(rope, "sliding_attention"), "factor");
    json_object_set_new(rope, "chunked_attention", json_object());
    expect_rejected(weft_model_read(mine, "config.json", &model),
                    "rope_parameters.chunked_attention", "{}");
    json_decref(old);
    json_decref(all);
}
