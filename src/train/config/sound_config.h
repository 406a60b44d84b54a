/* The key `sound` of a run: training with the sound of clips, for a transformer of both. */
#ifndef WEFT_TRAIN_CONFIG_SOUND_CONFIG_H
#define WEFT_TRAIN_CONFIG_SOUND_CONFIG_H

#include "base/config.h"

struct weft_run;

enum { WEFT_SOUND_TIMES_SEPARATE, WEFT_SOUND_TIMES_SHARED };

typedef struct weft_sound_config {
    const char *autoencoder; /* folder of the autoencoder of audio; "": no sound */
    const char *vocoder;     /* folder, copied to the finished model; "": next to the autoencoder */
    int times;               /* whether the streams have timesteps of their own */
    double loss_weight;      /* of the loss of the sound */
} weft_sound_config;
extern const weft_section weft_sound_section;

static inline bool weft_sound_given(const weft_sound_config *sound)
{
    return sound->autoencoder && sound->autoencoder[0];
}
/* Rejects combinations with other keys of the run. */
weft_status weft_sound_check(const struct weft_run *run, const char *path);

#endif
