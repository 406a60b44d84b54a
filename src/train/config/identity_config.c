#include "train/config/identity_config.h"

#include "model/encoders/identity_encoder.h"

static weft_status conflict(const char *path, const char *key)
{
    return weft_run_conflict(path, key, "identity.images or identity.image_encoder");
}

static weft_status check_images(const weft_string_list *images, const char *path)
{
    if (images->count > WEFT_IDENTITY_MOST_IMAGES)
        return weft_error(
            WEFT_MSG_CONFIG_VALUE,
            WEFT_AT(.file = path, .key = "identity.images", WEFT_NUMBER(images->count)),
            "%" PRId64 " sets are given, and a sample has up to %d images. Give fewer sets.",
            images->count, WEFT_IDENTITY_MOST_IMAGES);
    for (int64_t i = 0; i < images->count; i++)
        if (!images->item[i][0])
            return weft_error(
                WEFT_MSG_CONFIG_VALUE,
                WEFT_AT(.file = path,
                        .key = weft_message_key((char[64]){0}, "identity.images.%" PRId64, i)),
                "the set has no path. Give a data set with the keys of data.path, or remove the "
                "item.");
    return WEFT_OK;
}

weft_status weft_identity_check(const weft_run *run, const char *path)
{
    const weft_run_model *m = &run->identity;
    const char *key = m->images.count       ? "identity.images"
                      : m->image_encoder[0] ? "identity.image_encoder"
                                            : NULL;
    if (!key)
        return WEFT_OK;
    if (!weft_run_model_given(m))
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY,
                          WEFT_AT(.file = path, .key = "identity.class"),
                          "%s needs an identity encoder. Write identity: {class: "
                          "WeftIdentityEncoder}, or weights: FOLDER.",
                          key);
    WEFT_TRY(check_images(&m->images, path));
    if (run->data.sources.count)
        return conflict(path, "data.sources");
    if (run->data.samples_from == WEFT_FROM_PIXELS)
        return conflict(path, "data.input");
    return weft_cascades_planned(&run->cascades) != WEFT_CASCADES_NONE
               ? conflict(path, "parallel.cascades")
               : WEFT_OK;
}
