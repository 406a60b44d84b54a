
// ---- the gallery: players, comparison, failures -------------------------------------------------------

const contentPath = (job) => `/v1/videos/${job.id}/content`;

// A player needs a URL without headers: with a token, the bytes are fetched first.
async function contentUrl(job) {
  if (!stored.read('token', '')) return contentPath(job);
  const answer = await fetch(contentPath(job), { headers: headers() });
  if (!answer.ok) throw new Error('The video cannot be read.');
  return URL.createObjectURL(await answer.blob());
}

async function player(job) {
  const video = make('video', { controls: true, loop: true, muted: true, playsInline: true, preload: 'metadata' });
  video.setAttribute('aria-label', job.request.prompt.slice(0, 200));
  video.src = await contentUrl(job);
  return video;
}

async function download(job) {
  const link = make('a', { href: await contentUrl(job), download: job.id + '.mp4' });
  document.body.append(link);
  link.click();
  link.remove();
}

function createVideo(job) {
  const li = make('li'), now = () => li.job;
  li.holder = make('div');
  li.words = make('p', { className: 'words' });
  li.chip = make('span', { className: 'chip' });
  li.facts = make('span');
  li.why = make('p', { className: 'why', hidden: true });
  li.choice = make('input', { type: 'checkbox' });
  li.choice.addEventListener('change', showChoice);
  li.choose = make('label', { className: 'check' }, li.choice, ' compare');
  li.save = button('Download', () => download(now()));
  li.again = button('Try again', () => post(now(), 'resume'));
  li.append(li.holder, li.words, make('p', { className: 'meta' }, li.chip, li.facts), li.why, make('p', { className: 'buttons wide' },
    li.choose, li.save, li.again, button('Reuse settings', () => reuse(now())), li.seeds = button('Compare seeds', () => compare(alike(now()))),
    button('Delete', async () => {
      if (confirm('Delete this video and its files?')) await ask('DELETE', '/v1/jobs/' + now().id).then(refresh);
    })));
  li.setAttribute('data-id', job.id);
  return li;
}

function updateVideo(li, job) {
  const done = job.status === 'completed';
  li.job = job;
  setText(li.words, job.request.prompt);
  setText(li.chip, job.status);
  li.chip.className = 'chip ' + job.status;
  setText(li.facts, ` · ${settings(job.request)}` + (done ? ` · ${duration(job.seconds_spent)}, predicted ${duration(job.price.seconds)}` : ''));
  li.why.hidden = !job.error || job.status === 'cancelled';
  setText(li.why, job.error ? job.error.message : '');
  li.choose.hidden = li.save.hidden = !done;
  li.seeds.hidden = !done || alike(job).length < 2;
  li.again.hidden = !['failed', 'parked'].includes(job.status);
  if (done && !li.holder.firstChild && !li.loads) {
    li.loads = true;
    player(job).then((video) => li.holder.replaceChildren(video)).catch((e) => { li.loads = false; toast(e.message); });
  }
  if (!done) li.holder.replaceChildren();
}

function showGallery(all) {
  const jobs = all.filter(isFinal).sort((a, b) => (b.completed_at || 0) - (a.completed_at || 0));
  $('videos').jobs = jobs;
  show($('videos'), jobs, (job) => job.id, createVideo, updateVideo);
  $('gallery-empty').hidden = jobs.length > 0;
  showChoice();
}

// ---- comparison -----------------------------------------------------------------------------------------

const chosen = () => [...$('videos').children].filter((li) => li.choice.checked && li.job.status === 'completed').map((li) => li.job);

function showChoice() {
  const count = chosen().length;
  $('compare').disabled = count < 2;
  setText($('compare'), count ? `Compare selected (${count})` : 'Compare selected');
}

// Completed videos that differ in the seed only.
function alike(job) {
  const key = (j) => JSON.stringify({ ...j.request, seed: 0 });
  return ($('videos').jobs || []).filter((j) => j.status === 'completed' && key(j) === key(job))
    .sort((a, b) => a.request.seed - b.request.seed);
}

async function compare(jobs) {
  const figures = await Promise.all(jobs.map(async (job) => make('figure', {}, await player(job),
    make('figcaption', { textContent: `seed ${job.request.seed} · ${job.request.prompt.slice(0, 120)} · ${settings(job.request)}` }))));
  $('side').replaceChildren(...figures);
  $('both-seek').value = 0;
  $('comparison').showModal();
}

const sideVideos = () => [...$('side').querySelectorAll('video')];

function startGallery() {
  $('compare').addEventListener('click', () => compare(chosen()).catch((e) => toast(e.message)));
  $('both-play').addEventListener('click', () => sideVideos().forEach((video) => { video.currentTime = 0; video.play(); }));
  $('both-pause').addEventListener('click', () => sideVideos().forEach((video) => video.pause()));
  $('both-seek').addEventListener('input', () => sideVideos().forEach((video) => {
    video.pause();
    if (video.duration) video.currentTime = video.duration * $('both-seek').value / 1000;
  }));
  $('both-close').addEventListener('click', () => $('comparison').close());
  $('comparison').addEventListener('close', () => $('side').replaceChildren());
}
