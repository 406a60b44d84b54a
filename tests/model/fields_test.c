/* Fields of a config.json that weft does not read: the reference's defaults and fields without an
 * effect are accepted, every other one is rejected by name. */
#include "base/status.h"
#include "model/family.h"
#include "model/model.h"
#include "model/registry.h"

#include <criterion/criterion.h>
#include <string.h>

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
