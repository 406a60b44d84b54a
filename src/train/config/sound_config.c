#include "train/config/sound_config.h"

#include "train/config/train_config.h"

#include <string.h>

static const char *const times_names[] = {"separate", "shared", NULL};
static const weft_key sound_keys[] = {
    {"autoencoder", WEFT_KEY_STRING, offsetof(weft_sound_config, autoencoder), "", "",
     "folder of the frozen autoencoder of audio; latents of the sound and of the video are cached "
     "together"},
    {"vocoder", WEFT_KEY_STRING, offsetof(weft_sound_config, vocoder), "", "",
     "folder of the vocoder, which is copied to the finished model; empty: `vocoder` next to the "
     "autoencoder"},
    {"timesteps", WEFT_KEY_ENUM, offsetof(weft_sound_config, times), "separate", "",
     "whether video and sound of a sample have timesteps of their own, or the same one; with "
     "distill always the same one",
     .choices = times_names},
    {"loss_weight", WEFT_KEY_F64, offsetof(weft_sound_config, loss_weight), "1", "",
     "factor of the loss of the sound, which is added to the loss of the video", .min = 0,
     .max = 1e6},
};
const weft_section weft_sound_section = {
    "sound",
    "sound of the clips, for a transformer of video and sound (LTX-2); clips without sound train "
    "the video alone",
    sizeof(weft_sound_config), sound_keys, WEFT_COUNT(sound_keys)};

static weft_status conflict(const char *path, const char *key)
{
    return weft_run_conflict(path, key, "sound");
}

weft_status weft_sound_check(const weft_run *run, const char *path)
{
    if (!weft_sound_given(&run->sound))
        return WEFT_OK;
    if (!weft_run_model_given(&run->transformer))
        return weft_error(WEFT_MSG_CONFIG_NO_EFFECT, WEFT_AT(.file = path, .key = "sound"),
                          "sound is for a transformer; an autoencoder of video has none");
    if (run->data.fps <= 0)
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY, WEFT_AT(.file = path, .key = "data.fps"),
                          "with sound, all clips need the same number of frames per second, as "
                          "in data: {fps: 24}");
    if (strcmp(weft_run_process(run)->name, "flow") != 0)
        return conflict(path, "process");
    if (run->data.samples_from == WEFT_FROM_PIXELS)
        return conflict(path, "data.input");
    if (run->data.embeddings != WEFT_EMBEDDINGS_CACHED)
        return conflict(path, "data.text_embeddings");
    if (run->data.packing.tokens)
        return conflict(path, "data.packing");
    if (run->condition == WEFT_CONDITION_CONTROL)
        return conflict(path, "condition");
    if (weft_cascades_planned(&run->cascades) != WEFT_CASCADES_NONE)
        return conflict(path, "parallel.cascades");
    return WEFT_OK;
}
