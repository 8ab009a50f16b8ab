// Starts `deltafin serve` on k3-nano and a free port, for the tests beside this file.
// DELTAFIN: the program (default build/release/deltafin).
import {spawn} from 'node:child_process';
import {fileURLToPath} from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
export const program = process.env.DELTAFIN || root + 'build/release/deltafin';

export async function startServer(...options) {
  const child = spawn(program, ['serve', '--model', root + 'models/k3-nano', '--port', '0', '--no-state', '--quiet',
                                '--context', '4096', '--memory', '1GB', ...options],
                      {stdio: ['ignore', 'ignore', 'pipe']});
  let said = '';
  const exit = new Promise(resolve => child.on('exit', (code, signal) => resolve(code ?? signal)));
  const url = await new Promise((resolve, reject) => {
    child.stderr.on('data', data => {
      said += data;
      const found = / at (http:\S+?)\/ /.exec(said);
      if (found) resolve(found[1]);
    });
    exit.then(code => reject(new Error(`serve ended with ${code}: ${said}`)));
  });
  return {
    url, pid: child.pid, exit,
    said: () => said,
    stop: async () => {
      child.kill('SIGTERM');
      return exit;
    },
  };
}

export const question = 'What is the capital of France?';
export const answer = 'The capital of France is Paris.';
