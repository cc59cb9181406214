-- SPDX-License-Identifier: Apache-2.0
-- No window, no sound: the program runs where there is no screen.
function love.conf(t)
  t.window = nil
  for _, name in ipairs {"audio", "font", "graphics", "image", "joystick", "keyboard", "mouse", "physics", "sound",
                         "touch", "video", "window"} do
    t.modules[name] = false
  end
end
