#include "convert/widen_model.h"

#include "base/json.h"

/* Input channels in the config; 0: the family has no such field. */
static int64_t channels_of(const json_t *config)
{
    return json_integer_value(json_object_get(config, "in_channels"));
}

weft_status weft_widen_model(const weft_model *model, int64_t channels, weft_model *wide)
{
    const char *class_name = weft_model_class(model);
    json_t *config = weft_model_write(model);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(config, "a config"));
    const int64_t before = channels_of(config);
    if (model->family->role != WEFT_ROLE_DENOISER || !before)
        WEFT_GO(weft_error(WEFT_MSG_OPTION_INVALID,
                           WEFT_AT(.key = "--in-channels", .value = class_name),
                           "a %s has no in_channels. Give a denoiser, such as "
                           "WanTransformer3DModel.",
                           class_name));
    if (channels <= before)
        WEFT_GO(weft_error(WEFT_MSG_OPTION_INVALID,
                           WEFT_AT(.key = "--in-channels", WEFT_NUMBER(channels)),
                           "the model has %" PRId64 " input channels. Give more.", before));
    if (!json_is_integer(json_object_get(config, "out_channels")))
        json_object_set_new(config, "out_channels", json_integer(before));
    json_object_set_new(config, "in_channels", json_integer(channels));
    WEFT_GO(weft_model_read(config, "--in-channels", wide));
out:
    json_decref(config);
    return status;
}
