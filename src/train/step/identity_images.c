#include "train/step/identity_images.h"

#include "train/step/pair_index.h"

#include <string.h>

static bool is_image(const weft_run_pair *pair, int k)
{
    return pair[k].kind == WEFT_PAIR_IDENTITY;
}

weft_status weft_identity_images_check(const weft_run_pair *pair, weft_paired_latents *const *set,
                                       int sets, const weft_dataset *first)
{
    int of_images = 0;
    while (of_images < sets && !is_image(pair, of_images))
        of_images++;
    for (int64_t i = 0; of_images < sets && i < weft_dataset_count(first); i++) {
        const weft_sample *sample = weft_dataset_at(first, i);
        bool has = false;
        for (int k = of_images; k < sets && !has; k++)
            has = is_image(pair, k) && weft_paired_latents_has(set[k], sample->id);
        if (!has)
            return weft_error(WEFT_MSG_CONFIG_VALUE,
                              WEFT_AT(.file = pair[of_images].path, .key = pair[of_images].key,
                                      .value = sample->key),
                              "no set has a usable image of the clip \"%s\", which data.path has. "
                              "Add an image to one of the sets, or remove the clip.",
                              sample->key);
    }
    return WEFT_OK;
}

weft_status weft_identity_images_read(const weft_run_pair *pair, weft_paired_latents *const *set,
                                      int sets, const uint64_t *id, int64_t count,
                                      const weft_tensor *to, const weft_tensor *given)
{
    const int64_t most = to->shape.dim[1], floats = weft_shape_count(&to->shape) / count / most;
    float *at = to->data;
    for (int64_t i = 0; i < count; i++, at += most * floats) {
        int64_t images = 0;
        for (int k = 0; k < sets; k++)
            if (is_image(pair, k) && weft_paired_latents_has(set[k], id[i]))
                WEFT_TRY(weft_paired_latents_read(
                    set[k], pair[k].features ? WEFT_IMAGE_PART : WEFT_LATENT_PART, id[i], floats,
                    at + images++ * floats));
        memset(at + images * floats, 0, (size_t)((most - images) * floats) * sizeof *at);
        for (int64_t t = 0; given && t < most; t++)
            ((float *)given->data)[i * most + t] = t < images;
    }
    return WEFT_OK;
}
