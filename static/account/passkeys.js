/* Says what django-allauth's passkey scripts only write to the console. The buttons are disabled
   until scripts run: without them they could do nothing. */
'use strict';

for (const id of ['passkey-sign-in', 'passkey-authenticate', 'passkey-add']) {
  const button = document.getElementById(id);
  if (button && window.PublicKeyCredential) {
    button.disabled = false;
  }
}

document.addEventListener('allauth.error', (event) => {
  event.preventDefault();
  const problem = document.getElementById('passkey-problem');
  if (problem) {
    problem.hidden = false;
  }
});
